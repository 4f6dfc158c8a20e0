"""``producer ship`` into a null server: every kind of file, by Spark on two cores, by its cluster and by two processes.

``python -m tests.benchmarks.ship`` runs the whole command, by turns, and prints for each case the median of the lines'
megabytes a second after the engine is up, as its table tells, of the CPU seconds of a gigabyte, in which the start of
Python and Java is, and of the seconds of the whole command; then the ratios that the goals name. Each run is told on
stderr when it ends. ``--case`` and ``--engines`` choose some. What a cluster's workers spend is not in its CPU seconds.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from examples.ship_demo.samples import write_access_logs
from tests.benchmarks.server import null_server, take_counts, unmeasured

_ENGINES = {
    "spark": ("--engine=spark", "--master=local[2,4]"),
    "cluster": ("--engine=spark",),
    "local": ("--engine=local", "--workers=2"),
    "one": ("--engine=local", "--workers=1"),
}
#: Those that are measured if none is named.
_DEFAULT = ("spark", "local", "one")
#: Seconds that one command may take.
PATIENCE = 300
_RATE = re.compile(r"([\d,.]+) MB/s")
_ACCESS = (
    r'(?P<host>\S+) \S+ \S+ \[(?P<time>[^]]+)\] "(?P<request>[^"]*)" (?P<status>\d+) (?P<bytes>\d+) "-" "(?P<agent>.*)"'
)
_COLD_BYTES = 5_000_000
# Between two looks at what processes have spent.
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """What is shipped.

    :ivar write: writes the files, of about so many megabytes of lines each, and tells their paths.
    :ivar arguments: of the command.
    :ivar goal: of the rate, MB/s; None where the goal is a ratio or a time.
    """

    write: Callable[[Path, int], list[Path]]
    arguments: tuple[str, ...]
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run has taken.

    :ivar rate: MB/s of lines, when the engine was up.
    :ivar cpu: CPU seconds of a gigabyte of lines.
    :ivar seconds: of the whole command.
    """

    rate: float
    cpu: float
    seconds: float


def _repeated(path: Path, sample: bytes, megabytes: float) -> list[Path]:
    if not path.exists():
        with path.open("wb") as file:
            for _ in range(int(megabytes * 1_000_000 // len(sample) + 1)):
                file.write(sample)
    return [path]


def _access(folder: Path, megabytes: float) -> list[Path]:
    write_access_logs(folder)
    return _repeated(folder / "text.log", (folder / "access.log").read_bytes(), megabytes)


def _objects(folder: Path, megabytes: int) -> list[Path]:
    line = {"time": "2024-01-01T00:00:00Z", "level": "INFO", "ms": 12.5, "user": {"id": 7}, "message": "it was said"}
    some = "".join(json.dumps(line | {"number": number}) + "\n" for number in range(10_000)).encode()
    return _repeated(folder / "json.log", some, megabytes)


def _traces(folder: Path, megabytes: int) -> list[Path]:
    frames = "".join(f"\tat com.example.service.Orders.method{frame}(Orders.java:{frame})\n" for frame in range(8))
    log = "2024-01-01 00:00:00.000 ERROR it failed\njava.lang.IllegalStateException: no\n" + frames
    return _repeated(folder / "traces.log", (log * 2_000).encode(), megabytes)


def _compressed(folder: Path, megabytes: int) -> list[Path]:
    """One file for each of two cores."""
    paths = [folder / "1.gz", folder / "2.gz"]
    for path in paths:
        if not path.exists():
            path.write_bytes(gzip.compress(_access(folder, megabytes)[0].read_bytes(), 6))
    return paths


def _short(folder: Path, _megabytes: int) -> list[Path]:
    write_access_logs(folder)
    return _repeated(folder / "short.log", (folder / "access.log").read_bytes(), _COLD_BYTES / 1e6)


CASES = {
    "text": Case(_access, ("--parser=text",), 300),
    "apache": Case(_access, ("--parser=apache",), 100),
    "json": Case(_objects, ("--parser=json",), 80),
    "regex": Case(_access, ("--parser=regex", f"--pattern={_ACCESS}"), 60),
    "multiline": Case(_traces, ("--parser=text", r"--multiline-start=\d{4}-"), 100),
    "gzip": Case(_compressed, ("--parser=text",)),
    "cold": Case(_short, ("--parser=text",)),
}


def ship(port: int, arguments: Sequence[str], paths: Sequence[Path], line_bytes: int) -> Result:
    """Run the command."""
    target = [f"--endpoint=http://127.0.0.1:{port}", "--project=p", "--logstore=bench"]
    keys = ["--access-key-id=a", "--access-key-secret=s"]
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "producer", "ship", *map(str, paths), *arguments, *target, *keys],
        stdout=subprocess.PIPE,
        text=True,
        env=unmeasured() | {"COLUMNS": "200"},
    ) as command:
        spent = CpuOfTree(command.pid)
        output = _finish(command, spent, began + PATIENCE)
        seconds = time.monotonic() - began
    assert command.returncode == 0, output
    found = _RATE.search(output)
    assert found is not None, output
    assert take_counts(port)["raw_bytes"] > line_bytes
    return Result(float(found[1].replace(",", "")), spent.seconds / line_bytes * 1e9, seconds)


def _finish(command: subprocess.Popen[str], spent: CpuOfTree, end: float) -> str:
    """What it prints until it has ended, or is ended at the limit."""
    while True:
        try:
            return command.communicate(timeout=_LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            spent.look()
            if time.monotonic() > end:
                command.kill()
                raise


class CpuOfTree:
    """What a process and all below it have spent, as far as it was seen. The kernel adds up what ended processes have
    spent only for a parent that waits for them, and the one that starts Spark's Python workers does not.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._ticks: dict[tuple[int, str], int] = {}  # by process and when it was started

    def look(self) -> None:
        """Note what those that live have spent so far."""
        below: dict[int, list[tuple[int, list[str]]]] = defaultdict(list)
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                state = path.read_text().rpartition(")")[2].split()
                below[int(state[1])].append((int(path.parent.name), state))
        found = [each for each in below[os.getpid()] if each[0] == self._root]
        while found:
            number, state = found.pop()
            self._ticks[number, state[19]] = int(state[11]) + int(state[12])
            found += below[number]

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


def decompress(paths: Sequence[Path], line_bytes: int) -> float:
    """MB/s of ``gzip -dc`` on as many cores as there are files."""
    began = time.monotonic()
    running = [subprocess.Popen(["gzip", "-dc", str(path)], stdout=subprocess.DEVNULL) for path in paths]
    assert all(process.wait(PATIENCE) == 0 for process in running)
    return line_bytes / (time.monotonic() - began) / 1e6


def size_of(paths: Sequence[Path]) -> int:
    """The bytes of the files, those of compressed ones as they were before."""
    return sum(_plain_size(path) for path in paths)


def _plain_size(path: Path) -> int:
    if path.suffix != ".gz":
        return path.stat().st_size
    return int.from_bytes(path.read_bytes()[-4:], "little")


@contextmanager
def engines(names: Sequence[str], folder: Path) -> Iterator[dict[str, tuple[str, ...]]]:
    """The arguments of engines; a cluster is started if it is among them: two workers, a core each."""
    with ExitStack() as stack:
        chosen = {name: _ENGINES[name] for name in names}
        if "cluster" in chosen:
            from tests.spark.cluster.cluster import Cluster  # it needs Spark

            (folder / "cluster").mkdir()
            cluster = stack.enter_context(Cluster(folder / "cluster", Path(sys.executable)))
            chosen["cluster"] += (f"--master={cluster.url}",)
        yield chosen


def report(results: dict[tuple[str, str], list[Result]], decompressed: float | None) -> list[str]:
    """The lines of the table, and the ratios."""
    median = {
        key: Result(*(statistics.median(getattr(each, name) for each in some) for name in ("rate", "cpu", "seconds")))
        for key, some in results.items()
    }
    lines = []
    for (engine, name), result in median.items():
        goal = CASES[name].goal
        told = "" if goal is None or engine == "one" else f"   goal {goal:g} MB/s: {_verdict(result.rate >= goal)}"
        lines.append(f"{_row(engine, name, result)}{told}")
    return [*lines, *_ratios(median, decompressed)]


def _row(engine: str, name: str, result: Result) -> str:
    return f"{engine:7} {name:9} {result.rate:8.1f} MB/s {result.cpu:8.1f} CPU s/GB {result.seconds:6.1f} s"


def _ratios(median: dict[tuple[str, str], Result], decompressed: float | None) -> Iterator[str]:
    def ratio(what: str, value: float, other: float, goal: float) -> str:
        return f"{what}: {value / other:.2f}   goal {goal:g}: {_verdict(value / other >= goal)}"

    text = {engine: result for (engine, name), result in median.items() if name == "text"}
    for engine in ("spark", "local"):
        if engine in text and "one" in text:
            yield ratio(f"text, {engine} / twice one process", text[engine].rate, 2 * text["one"].rate, 0.6)
        if engine in text:
            cpu = text[engine].cpu
            yield f"text, {engine}, CPU seconds a GB: {cpu:.1f}   goal 5: {_verdict(cpu <= 5)}"
        if (engine, "gzip") in median and decompressed is not None:
            yield ratio(f"gzip, {engine} / gzip -dc", median[engine, "gzip"].rate, decompressed, 0.8)
    if {"cluster", "spark"} <= text.keys():
        yield ratio("text, cluster of 2 workers / local[2]", text["cluster"].rate, text["spark"].rate, 0.9)
    if ("local", "cold") in median:
        seconds = median["local", "cold"].seconds
        yield f"cold, local, the whole command: {seconds:.2f} s   goal 1.5: {_verdict(seconds <= 1.5)}"


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every way, by turns, and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ship", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=list(_DEFAULT))
    args = parser.parse_args(arguments)
    found: dict[tuple[str, str], list[Result]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        null_server() as port,
        engines(args.engines, Path(folder)) as chosen,
    ):
        files = {name: CASES[name].write(Path(folder), args.megabytes) for name in args.case}
        sizes = {name: size_of(paths) for name, paths in files.items()}
        for _ in range(args.rounds):
            for engine, options in chosen.items():
                for name, paths in files.items():
                    if engine == "one" and name != "text":
                        continue  # it is there to be compared with
                    result = ship(port, [*CASES[name].arguments, *options], paths, sizes[name])
                    print(_row(engine, name, result), file=sys.stderr, flush=True)
                    found.setdefault((engine, name), []).append(result)
        decompressed = decompress(files["gzip"], sizes["gzip"]) if "gzip" in files else None
    print("\n".join(report(found, decompressed)))


if __name__ == "__main__":
    main()
