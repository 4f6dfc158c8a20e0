"""Measure ``producer ship`` into a null server: every kind of file, by each engine, and beside peers.

``python -m tests.benchmarks --case ship`` (``ship-text ship-json`` chooses) runs the whole command: by Spark on two
cores, by its cluster, by two processes and by one. The peers of :mod:`.ship_peers` run the cases that they support, all
of them in each round.

It prints these medians, then the ratios of the goals, and a table:

- megabytes of lines per second after the engine is up, from the command's table;
- CPU seconds per gigabyte, including the start of Python and Java, without the workers of a cluster;
- seconds of the whole command.

Each run is reported on stderr when it ends. A plot needs the extra ``bench``.
"""

import argparse
import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from examples.ship_demo.samples import write_access_logs

from .cpu import CpuOfTree
from .machine import describe
from .report import insert
from .server import null_server, take_counts, unmeasured
from .ship_peers import ACCESS, PEERS, described, install, sample_of
from .ship_report import Measured, Result, document, draw, load, report, row, table

_ENGINES = {
    "spark": ("--engine=spark", "--master=local[2,4]"),
    "cluster": ("--engine=spark",),
    "local": ("--engine=local", "--workers=2"),
    "one": ("--engine=local", "--workers=1"),
}
#: The document with the table.
DOCUMENT = Path(__file__).with_name("RESULTS.md")
#: Maximum seconds of one command.
PATIENCE = 300
_RATE = re.compile(r"([\d,.]+) MB/s")
_COLD_BYTES = 5_000_000
# Seconds between two readings of the processes' CPU time.
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Case:
    """A case: its files, and the arguments of the command.

    :ivar write: writes files of about so many megabytes of lines each, and returns their paths.
    :ivar arguments: arguments of the command.
    """

    write: Callable[[Path, int], list[Path]]
    arguments: tuple[str, ...]


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
    """Write one compressed file for each of two cores."""
    first, second = folder / "1.gz", folder / "2.gz"
    if not first.exists():
        first.write_bytes(gzip.compress(_access(folder, megabytes)[0].read_bytes(), 6))
        shutil.copy(first, second)
    return [first, second]


def _short(folder: Path, _megabytes: int) -> list[Path]:
    write_access_logs(folder)
    return _repeated(folder / "short.log", (folder / "access.log").read_bytes(), _COLD_BYTES / 1e6)


CASES = {
    "text": Case(_access, ("--parser=text",)),
    "apache": Case(_access, ("--parser=apache",)),
    "json": Case(_objects, ("--parser=json",)),
    "regex": Case(_access, ("--parser=regex", f"--pattern={ACCESS}")),
    "multiline": Case(_traces, ("--parser=text", r"--multiline-start=\d{4}-")),
    "gzip": Case(_compressed, ("--parser=text",)),
    "cold": Case(_short, ("--parser=text",)),
}


def ship(port: int, arguments: Sequence[str], paths: Sequence[Path], line_bytes: int) -> Result:
    """Run the command, and return its figures."""
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
    """Return the output when the command ends; kill it at the limit."""
    while True:
        try:
            return command.communicate(timeout=_LOOK_SECONDS)[0]
        except subprocess.TimeoutExpired:
            spent.update()
            if time.monotonic() > end:
                command.kill()
                raise


def decompress(paths: Sequence[Path], line_bytes: int) -> float:
    """Return the MB/s of ``gzip -dc`` with one process per file."""
    began = time.monotonic()
    running = [subprocess.Popen(["gzip", "-dc", str(path)], stdout=subprocess.DEVNULL) for path in paths]
    assert all(process.wait(PATIENCE) == 0 for process in running)
    return line_bytes / (time.monotonic() - began) / 1e6


def size_of(paths: Sequence[Path]) -> int:
    """Return the bytes of the files, decompressed."""
    return sum(_plain_size(path) for path in paths)


def _plain_size(path: Path) -> int:
    if path.suffix != ".gz":
        return path.stat().st_size
    return int.from_bytes(path.read_bytes()[-4:], "little")


@contextmanager
def engines(names: Sequence[str], folder: Path) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yield the arguments of the engines; for ``cluster``, start one with two workers of one core each."""
    with ExitStack() as stack:
        chosen = {name: _ENGINES[name] for name in names}
        if "cluster" in chosen:
            from tests.spark.cluster.cluster import Cluster  # imports Spark

            (folder / "cluster").mkdir()
            cluster = stack.enter_context(Cluster(folder / "cluster", Path(sys.executable)))
            chosen["cluster"] += (f"--master={cluster.url}",)
        yield chosen


#: The name of the engine or peer, the case, and the function that runs it.
Turn = tuple[str, str, Callable[[], Result]]


def _ours(chosen: dict[str, tuple[str, ...]], files: dict[str, list[Path]], port: int) -> Iterator[Turn]:
    for engine, options in chosen.items():
        for name, paths in files.items():
            if engine != "one" or name == "text":  # one process is measured only for comparison
                arguments, size = [*CASES[name].arguments, *options], size_of(paths)
                yield engine, name, partial(ship, port, arguments, paths, size)


def _theirs(names: Sequence[str], cases: Sequence[str], source: Path, port: int) -> Iterator[Turn]:
    for name in names:
        peer = PEERS[name]
        for case in peer.cases:
            if case in cases:
                yield name, case, partial(peer.run, case, sample_of(source, peer.share), port)


def measure(args: argparse.Namespace) -> Measured:
    """Measure every way in each round; after each round, write the results if a file is given."""
    left_out = install(args.peers)
    peers = [name for name in args.peers if name not in left_out]
    found = Measured(megabytes=args.megabytes, left_out=left_out, machine=describe(described(peers)))
    with tempfile.TemporaryDirectory() as name, null_server() as port, engines(args.engines, Path(name)) as chosen:
        folder = Path(name)
        files = {case: CASES[case].write(folder, args.megabytes) for case in args.case}
        source = _access(folder, args.megabytes)[0]
        turns = [*_ours(chosen, files, port), *_theirs(peers, args.case, source, port)]
        for _ in range(args.rounds):
            for shipper, case, run in turns:
                result = run()
                print(row(shipper, case, result), file=sys.stderr, flush=True)
                found.results.setdefault((shipper, case), []).append(result)
                if args.results:
                    found.keep(args.results)
            if "gzip" in files:
                found.unzipped.append(decompress(files["gzip"], size_of(files["gzip"])))
    if args.results:
        found.keep(args.results)
    return found


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks --case ship", description=__doc__.splitlines()[0])
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES), help="without ship-; default: all")
    parser.add_argument("--megabytes", type=int, default=150, help="of lines of each file; slow peers take fewer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", choices=_ENGINES, default=list(_ENGINES), help="default: all")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all; no names: none")
    parser.add_argument("--results", type=Path, metavar="PATH", help="keep the results there, as JSON")
    parser.add_argument("--from", dest="source", type=Path, metavar="PATH", help="measure nothing, take these results")
    parser.add_argument(
        "--plot", type=Path, metavar="PATH", help="where to draw them, such as docs/images/ship-rates.svg"
    )
    parser.add_argument("--write", action="store_true", help=f"write the table into {DOCUMENT}")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the cases, write the results and print the report."""
    args = parsed(arguments)
    found = load(args.source) if args.source else measure(args)
    print("\n".join([*report(found.results, found.decompressed), "", *table(found)]))
    if args.plot:
        draw(found, args.plot)
    if args.write:
        DOCUMENT.write_text(insert(DOCUMENT.read_text(), "ship", document(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
