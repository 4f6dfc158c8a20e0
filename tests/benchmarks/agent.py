"""Measure the agent beside Apache Flume: both run the same properties file, by turns.

``python -m tests.benchmarks.agent`` writes a file of lines, lets each agent read it into a sink, and polls its
monitoring for the number of events that the sink took from the channel and committed. The rate is taken between the
first and the last of them, so the start does not count. CPU seconds and memory are those of the whole process. The
options are ``--case``, ``--rounds`` and ``--megabytes``. Without Maven or Java only our agent runs.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .installation import FOLDER, HERE, PATIENCE, NotInstalledError, locked, once

_POM = HERE / "clients" / "flume" / "pom.xml"
_LINE = b'127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a/path/of/some/length HTTP/1.1" 200 2326 "-" "%s"\n'
LINE_BYTES = 250
#: The pattern of the lines of :mod:`examples.ship_demo.samples`.
ACCESS = r'^(\S+) \S+ \S+ \[([^]]+)\] "([^"]*)" (\d+) (\d+) "-" "(.*)"$'
#: The names of the pattern's groups.
GROUPS = ("host", "time", "request", "status", "bytes", "agent")
#: Events of a transaction: the number at which Flume is fastest.
_BATCH = 1000
#: Seconds between two reads of the counters.
_READ_SECONDS = 0.02

_EXTRACTOR = "\n".join(
    [
        "interceptors = x",
        "interceptors.x.type = regex_extractor",
        "interceptors.x.regex = " + ACCESS.replace("\\", r"\\"),
        f"interceptors.x.serializers = {' '.join(GROUPS)}",
        *(f"interceptors.x.serializers.{name}.name = {name}" for name in GROUPS),
    ]
)
_SOURCES = {
    "taildir": "type = TAILDIR\nfilegroups = f\nfilegroups.f = {input}/.*\\\\.log\n"
    f"positionFile = {{state}}/positions.json\nbatchSize = {_BATCH}",
    "spooldir": f"type = spooldir\nspoolDir = {{input}}\ndeserializer.maxLineLength = 4096\nbatchSize = {_BATCH}",
}
_SOURCES["extracted"] = f"{_SOURCES['taildir']}\n{_EXTRACTOR}"
_CHANNELS = {
    "memory": f"type = memory\ncapacity = 100000\ntransactionCapacity = {_BATCH}",
    "file": "type = file\ncheckpointDir = {state}/checkpoint\ndataDirs = {state}/data\n"
    f"transactionCapacity = {_BATCH}",
}
_SINKS = {
    "null": f"type = null\nbatchSize = {_BATCH}",
    "file_roll": f"type = file_roll\nsink.directory = {{output}}\nsink.rollInterval = 0\nsink.batchSize = {_BATCH}",
}


@dataclass(frozen=True, slots=True)
class Case:
    source: str
    channel: str
    sink: str
    goal: float
    share: float


CASES = {
    "memory": Case("taildir", "memory", "null", 2, 1),
    "file": Case("taildir", "file", "null", 10, 0.4),
    "spooldir": Case("spooldir", "file", "null", 10, 0.4),
    "roll": Case("taildir", "file", "file_roll", 10, 0.2),
}


#: Like ``memory``, with the groups of :data:`ACCESS` as fields.
EXTRACTED = Case("extracted", "memory", "null", goal=1, share=1)


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run: events per second, microseconds of CPU per event (start included), MiB resident at the end."""

    rate: float
    cpu: float
    memory: float


def properties(case: Case, folder: Path) -> str:
    names = {"input": folder / "in", "state": folder / "state", "output": folder / "out"}
    parts = {"sources.r": _SOURCES[case.source], "channels.c": _CHANNELS[case.channel], "sinks.k": _SINKS[case.sink]}
    lines = ["a1.sources = r", "a1.channels = c", "a1.sinks = k", "a1.sources.r.channels = c", "a1.sinks.k.channel = c"]
    for part, text in parts.items():
        lines += [f"a1.{part}.{line}" for line in text.format(**names).splitlines()]
    return "\n".join(lines) + "\n"


def install_flume(folder: Path = FOLDER) -> Path:
    for command in ("java", "mvn"):
        if shutil.which(command) is None:
            raise NotInstalledError(f"`{command}` was not found")
    target = folder / "flume"
    with locked(folder), once(target, _POM.read_bytes()) as needed:
        if needed:
            target.mkdir(parents=True)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
            try:
                with (folder / "flume.log").open("w") as log:
                    maven = ["mvn", "--batch-mode", "--file", str(_POM), *goal]
                    subprocess.run(maven, check=True, timeout=PATIENCE, stdout=log, stderr=log)
            except (OSError, subprocess.SubprocessError) as error:
                raise NotInstalledError(f"Maven failed: {type(error).__name__}; see {folder / 'flume.log'}") from error
    return target


def _ours(file: Path, port: int, _folder: Path) -> list[str]:
    state = str(file.with_name("agent"))
    monitoring = ["--monitoring", f"127.0.0.1:{port}", "--state", state, "--no-reload"]
    return [sys.executable, "-m", "producer", "agent", "--flume", str(file), "--name", "a1", *monitoring]


def _flume(file: Path, port: int, folder: Path) -> list[str]:
    jars = install_flume()
    monitoring = ["-Dflume.monitoring.type=http", f"-Dflume.monitoring.port={port}", "-Xmx1g"]
    main = ["org.apache.flume.node.Application", "-n", "a1", "-f", str(file), "--no-reload-conf"]
    return ["java", *monitoring, "-cp", f"{folder}:{jars}/*", *main]


AGENTS = {"flume": _flume, "ours": _ours}


def measure(agent: str, case: Case, events: int) -> Figures:
    with folders() as folder:
        _write(folder / "in" / "a.log", events)
        return run(agent, case, folder, events)


@contextmanager
def folders() -> Iterator[Path]:
    """Return a new folder with the folders that :func:`properties` names."""
    with tempfile.TemporaryDirectory(prefix="agent-") as name:
        for part in ("in", "out", "state"):
            (Path(name) / part).mkdir()
        yield Path(name)


def run(agent: str, case: Case, folder: Path, events: int) -> Figures:
    """Run one agent until it has delivered all lines of the files in ``in``."""
    file, port = folder / "agent.properties", free_port()
    file.write_text(properties(case, folder))
    with started(AGENTS[agent](file, port, folder)) as process:
        rate = _watch(process, port, events)
        return Figures(rate, cpu_seconds(process) / events * 1e6, memory_of(process))


def free_port() -> int:
    """Return a port without a listener at this moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _write(path: Path, events: int) -> None:
    line = _LINE % (b"x" * (LINE_BYTES - len(_LINE) + 2))
    assert len(line) == LINE_BYTES
    with path.open("wb") as file:
        for first in range(0, events, _BATCH):
            file.write(line * min(_BATCH, events - first))
    if (old := time.time() - 3600) > 0:
        os.utime(path, (old, old))  # closed for writing: no agent waits for more lines


@contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _watch(process: subprocess.Popen[bytes], port: int, events: int) -> float:
    """Return the events per second after the first ones were delivered."""
    begun = first = 0.0
    before = 0
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the agent ended with {process.returncode}: {' '.join(map(str, process.args))}")  # type: ignore[arg-type]
        count, now = _delivered(port), time.monotonic()
        if count and not first:
            first, before = now, count
        if count >= events:
            return (count - before) / (now - first) if count > before else count / max(now - begun, _READ_SECONDS)
        if not first:
            begun = now
        time.sleep(_READ_SECONDS)
    raise TimeoutError(f"{before} of {events} events in {PATIENCE} s")


def _delivered(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics.json", timeout=5) as answer:
            figures = json.load(answer)
    except (OSError, ValueError):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                figures = json.load(answer)
        except (OSError, ValueError):
            return 0
    return int(figures.get("CHANNEL.c", {}).get("EventTakeSuccessCount", 0))


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: subprocess.Popen[bytes]) -> float:
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.agent")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500, help="of lines")
    args = parser.parse_args(argv)
    agents = list(AGENTS)
    try:
        install_flume()
    except NotInstalledError as error:
        print(f"Flume does not run here: {error}")
        agents.remove("flume")
    print("| path | agent | events/s | MB/s | CPU µs/event | MiB | against Flume | goal |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.case or CASES:
        case = CASES[name]
        events = int(args.megabytes * case.share * 1e6 / LINE_BYTES)
        found: dict[str, list[Figures]] = {agent: [] for agent in agents}
        for _ in range(args.rounds):
            for agent in agents:
                found[agent].append(measure(agent, case, events))
        _print(case, found)


def _print(case: Case, found: dict[str, list[Figures]]) -> None:
    rates = {agent: statistics.median(each.rate for each in runs) for agent, runs in found.items()}
    for agent, runs in found.items():
        cpu, memory = (statistics.median(getattr(each, name) for each in runs) for name in ("cpu", "memory"))
        ratio = (
            f"{rates[agent] / rates['flume']:.2f} | {case.goal:g}" if agent == "ours" and "flume" in rates else " | "
        )
        path = f"{case.source} → {case.channel} → {case.sink}"
        rate = f"{rates[agent]:,.0f} | {rates[agent] * LINE_BYTES / 1e6:.0f}"
        print(f"| {path} | {agent} | {rate} | {cpu:.2f} | {memory:.0f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
