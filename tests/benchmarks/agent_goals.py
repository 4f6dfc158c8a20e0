"""Measure the agent alone against its goals: into LogHub, over a hop, from syslog, idle and at a steady rate.

``python -m tests.benchmarks.agent_goals`` runs ``producer agent`` on one path after the other and prints a table: the
path, the figure, the goal, CPU seconds and memory of the process. Rates are taken between the first and the last events
that left the channel, as its monitoring counts them; rates into LogHub end when the null server has all events.
:mod:`.agent` measures the agent beside Flume.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from examples.ship_demo.samples import write_access_logs

from .agent import ACCESS, GROUPS, cpu_seconds, free_port, memory_of, started
from .installation import PATIENCE
from .report import insert
from .server import null_server, unmeasured

_DOCUMENT = Path("tests/benchmarks/MEASURED.md")
_READ_SECONDS = 0.02
#: The steady case: bytes per second, and bytes of a line.
_STEADY, _STEADY_LINE = 10_000_000, 512
#: Files of the idle case.
_FILES = 1000
#: Messages of the case syslog.
_PEERS = 10

_AGENT = '[agent]\nname = "{name}"\nstate = "{state}"\nmonitoring = "127.0.0.1:{port}"\n'
TAILDIR = '[sources.r]\ntype = "taildir"\npaths = ["{input}/*.log"]\nchannels = ["c"]\n'
_FILE = '[channels.c]\ntype = "file"\nminimum_free_space = 0\n'
MEMORY = '[channels.c]\ntype = "memory"\n'
NULL = '[sinks.k]\ntype = "null"\nchannel = "c"\n'
_LOGHUB = (
    '[sinks.k]\ntype = "loghub"\nchannel = "c"\nproject = "p"\nlogstore = "l"\nendpoint = "http://127.0.0.1:{server}"\n'
    'access_key_id = "a"\naccess_key_secret = "s"\n'
)
_REGEX = (
    f"[[sources.r.interceptors]]\ntype = \"regex_extractor\"\nregex = '''{ACCESS}'''\nheaders = {json.dumps(GROUPS)}\n"
)
_SYSLOG = '[sources.r]\ntype = "syslog_tcp"\nport = {hop}\nchannels = ["c"]\n'
_HTTP = (
    '[sources.r]\ntype = "http"\nport = {hop}\nformat = "batches"\nchannels = ["c"]\n',
    '[sinks.k]\ntype = "http"\nchannel = "c"\nendpoint = "http://127.0.0.1:{hop}/"\nformat = "batches"\n',
)
_AVRO = (
    '[sources.r]\ntype = "avro"\nport = {hop}\nchannels = ["c"]\n',
    '[sinks.k]\ntype = "avro"\nchannel = "c"\nhostname = "127.0.0.1"\nport = {hop}\n',
)
_THRIFT = (
    '[sources.r]\ntype = "thrift"\nport = {hop}\nchannels = ["c"]\n',
    '[sinks.k]\ntype = "thrift"\nchannel = "c"\nhostname = "127.0.0.1"\nport = {hop}\n',
)

Case = TypeVar("Case")


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run: the value in the goal's unit, CPU seconds of all agents, MiB of the larger one at the end."""

    value: float
    cpu: float
    memory: float


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of a path: ``run`` measures once with a number of MB of lines; bounds of the value, and maximum MiB."""

    title: str
    unit: str
    run: Callable[[Path, int], Figures]
    least: float | None = None
    most: float | None = None
    memory: float | None = None

    def verdict(self, figures: Figures) -> str:
        met = (
            (self.least is None or figures.value >= self.least)
            and (self.most is None or figures.value <= self.most)
            and (self.memory is None or figures.memory <= self.memory)
        )
        return "met" if met else "**missed**"

    def bound(self) -> str:
        bound = f"≥ {self.least:,.0f}" if self.least is not None else f"≤ {self.most:g}"
        return f"{bound} {self.unit}" + (f", ≤ {self.memory:g} MiB" if self.memory else "")


class Running:
    """A running agent with its monitoring."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    def counted(self, component: str, counter: str) -> int:
        """Return one of the agent's counters, or 0 if it does not answer yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics.json", timeout=5) as answer:
                return int(json.load(answer).get(component, {}).get(counter, 0))
        except (OSError, ValueError):
            if self.process.poll() is not None:
                raise RuntimeError(f"the agent ended with {self.process.returncode}") from None
            return 0

    def delivered(self) -> int:
        return self.counted("CHANNEL.c", "EventTakeSuccessCount")

    def figures(self, value: float) -> Figures:
        return Figures(value, cpu_seconds(self.process), memory_of(self.process))


def filled(parts: str, folder: Path, name: str, port: int, **values: object) -> str:
    text = _AGENT + parts
    places = {"state": folder / name, "input": folder / "in", "folder": folder}
    for key, value in {"name": name, "port": port, **places, **values}.items():
        text = text.replace(f"{{{key}}}", str(value))
    return text


@contextmanager
def running_agent(folder: Path, name: str, parts: str, **values: object) -> Iterator[Running]:
    port, file = free_port(), folder / f"{name}.toml"
    file.write_text(filled(parts, folder, name, port, **values))
    with started([sys.executable, "-m", "producer", "agent", "--config", str(file), "--no-reload"]) as process:
        yield Running(process, port)


def access_lines(size: int | None, count: int = 20_000) -> bytes:
    """Return lines of an access log, each of ``size`` bytes if that is given."""
    with tempfile.TemporaryDirectory() as folder:
        write_access_logs(Path(folder), lines=count)
        lines = (Path(folder) / "access.log").read_bytes().splitlines()
    if size is None:
        return b"".join(line + b"\n" for line in lines)
    tail = b"-" * size
    shop = b"https://shop.example.com/catalogue/page/%d"
    padded = (b"%s %s %s" % (line, shop % number, tail) for number, line in enumerate(lines))
    return b"".join(line[: size - 1] + b"\n" for line in padded)


def _write(folder: Path, block: bytes, megabytes: int) -> int:
    """Write the lines of the input, and return their number."""
    times = max(1, megabytes * 1_000_000 // len(block))
    write_old(folder / "in" / "a.log", block, times)
    return times * block.count(b"\n")


def write_old(path: Path, block: bytes, times: int) -> None:
    """Write a file whose last change was an hour ago."""
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        for _ in range(times):
            file.write(block)
    old = time.time() - 3600
    os.utime(path, (old, old))


def rate_of(count: Callable[[], int], events: int) -> float:
    """Return the events per second after the first ones arrived."""
    end, first, before, begun = time.monotonic() + PATIENCE, 0.0, 0, time.monotonic()
    while time.monotonic() < end:
        found, now = count(), time.monotonic()
        if found >= events:
            return (
                (found - before) / (now - first)
                if first and found > before
                else found / max(now - begun, _READ_SECONDS)
            )
        if found and not first:
            first, before = now, found
        if not first:
            begun = now
        time.sleep(_READ_SECONDS)
    raise TimeoutError(f"{before} of {events} events in {PATIENCE} s")


def _through(parts: str, size: int | None) -> Callable[[Path, int], Figures]:
    def run(folder: Path, megabytes: int) -> Figures:
        block = access_lines(size)
        events = _write(folder, block, megabytes)
        with null_server() as server:
            return deliver(parts, folder, server, events, events * len(block) // block.count(b"\n"))

    return run


def deliver(parts: str, folder: Path, server: int, events: int, line_bytes: int) -> Figures:
    """Return the MB/s at which an agent delivers the files in ``in``, which hold these lines and bytes."""
    with running_agent(folder, "a", parts, server=server) as agent:
        rate = rate_of(agent.delivered, events)
        return agent.figures(rate * line_bytes / events / 1e6)


def _hop(far_parts: str, near_parts: str) -> Callable[[Path, int], Figures]:
    """Return a run that measures events per second over two agents: the first has a file channel, the second one in
    memory.
    """

    def run(folder: Path, megabytes: int) -> Figures:
        events, hop = _write(folder, access_lines(250), megabytes), free_port()
        with ExitStack() as alive:
            far = alive.enter_context(running_agent(folder, "far", far_parts, hop=hop))
            near = alive.enter_context(running_agent(folder, "near", near_parts, hop=hop))
            rate = rate_of(far.delivered, events)
            both = [agent.figures(rate) for agent in (near, far)]
            return Figures(rate, sum(each.cpu for each in both), max(each.memory for each in both))

    return run


_SEND = """
import socket, sys
port, count = map(int, sys.argv[1:])
line = b"<34>1 2024-01-01T00:00:00.000Z host app 1 ID - " + b"x" * 202 + b"\\n"
assert len(line) == 250
with socket.create_connection(("127.0.0.1", port)) as peer:
    block = line * 200
    for _ in range(count // 200):
        peer.sendall(block)
    peer.shutdown(socket.SHUT_WR)
    while peer.recv(1 << 16):
        pass
"""


def _syslog(folder: Path, megabytes: int) -> Figures:
    each, hop = megabytes * 1_000_000 // 250 // _PEERS // 200 * 200, free_port()
    with running_agent(folder, "a", *PATHS["syslog"], hop=hop) as agent:
        until_listening(hop)
        command = [sys.executable, "-c", _SEND, str(hop), str(each)]
        peers = [subprocess.Popen(command, env=unmeasured()) for _ in range(_PEERS)]
        try:
            rate = rate_of(lambda: agent.counted("CHANNEL.c", "EventPutSuccessCount"), each * _PEERS)
            return agent.figures(rate)
        finally:
            for peer in peers:
                peer.kill()
                peer.wait()


def until_listening(port: int) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(_READ_SECONDS)
    raise TimeoutError(f"no listener on port {port}")


def _idle(folder: Path, seconds: int) -> Figures:
    """Measure the per cent of a core that an agent needs to watch files without changes."""
    (folder / "in").mkdir()
    for number in range(_FILES):
        (folder / "in" / f"{number}.log").write_bytes(b"a line\n")
    with running_agent(folder, "a", *PATHS["idle"]) as agent:
        rate_of(agent.delivered, _FILES)
        time.sleep(3)  # the agent has become idle by then
        return _share_over(agent, max(10, seconds // 4))


def _steady(folder: Path, seconds: int) -> Figures:
    """Measure the per cent of a core that an agent needs for lines at a steady rate."""
    (folder / "in").mkdir()
    block, end = access_lines(_STEADY_LINE), threading.Event()
    with null_server() as server, running_agent(folder, "a", *PATHS["steady"], server=server) as agent:
        writer = threading.Thread(target=_write_steadily, args=(folder / "in" / "a.log", block, end))
        writer.start()
        try:
            rate_of(agent.delivered, _STEADY // _STEADY_LINE)
            return _share_over(agent, max(5, seconds // 10))
        finally:
            end.set()
            writer.join()


def _write_steadily(path: Path, block: bytes, end: threading.Event) -> None:
    part, begun, at, written = _STEADY // 20 // _STEADY_LINE * _STEADY_LINE, time.monotonic(), 0, 0
    with path.open("ab", buffering=0) as file:
        while not end.wait(max(0.0, begun + written / _STEADY - time.monotonic())):
            if at + part > len(block):
                at = 0
            written += file.write(block[at : at + part])
            at += part


def _share_over(agent: Running, seconds: float) -> Figures:
    before, begun = cpu_seconds(agent.process), time.monotonic()
    time.sleep(seconds)
    cpu = cpu_seconds(agent.process) - before
    return Figures(100 * cpu / (time.monotonic() - begun), cpu, memory_of(agent.process))


#: The properties of the agents of each path.
PATHS = {
    "loghub": [TAILDIR + _FILE + _LOGHUB],
    "text": [TAILDIR + MEMORY + _LOGHUB],
    "regex": [TAILDIR + _REGEX + MEMORY + NULL],
    "regex_loghub": [TAILDIR + _REGEX + MEMORY + _LOGHUB],
    "syslog": [_SYSLOG + _FILE + NULL],
    "http": [_HTTP[0] + MEMORY + NULL, TAILDIR + _FILE + _HTTP[1]],
    "avro": [_AVRO[0] + MEMORY + NULL, TAILDIR + _FILE + _AVRO[1]],
    "thrift": [_THRIFT[0] + MEMORY + NULL, TAILDIR + _FILE + _THRIFT[1]],
    "steady": [TAILDIR + _FILE + _LOGHUB],
    "idle": [TAILDIR + _FILE + NULL],
}
GOALS = {
    "loghub": Goal("taildir → file → LogHub, 250 B", "MB/s", _through(*PATHS["loghub"], 250), least=150),
    "text": Goal("taildir → memory → LogHub, 250 B", "MB/s", _through(*PATHS["text"], 250), least=300),
    "regex": Goal("access log → regex_extractor → memory", "MB/s", _through(*PATHS["regex"], None), least=60),
    "regex_loghub": Goal(
        "access log → regex_extractor → memory → LogHub", "MB/s", _through(*PATHS["regex_loghub"], None), least=60
    ),
    "syslog": Goal("syslog TCP, 250 B, 10 connections → file", "events/s", _syslog, least=100_000),
    "http": Goal("two agents, http with batches, 250 B", "events/s", _hop(*PATHS["http"]), least=5 * 26_600),
    "avro": Goal("two agents, avro, 250 B", "events/s", _hop(*PATHS["avro"]), least=5 * 26_600),
    "thrift": Goal("two agents, thrift, 250 B", "events/s", _hop(*PATHS["thrift"]), least=5 * 26_600),
    "steady": Goal("10 MB/s of 512 B → file → LogHub", "% of a core", _steady, most=8, memory=100),
    "idle": Goal("1,000 files at rest", "% of a core", _idle, most=0.5, memory=80),
}


def measure(goal: Goal, megabytes: int, rounds: int) -> list[Figures]:
    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="agent-") as folder:
            found.append(goal.run(Path(folder), megabytes))
    return found


def medians(runs: Sequence[Figures]) -> Figures:
    return Figures(*(statistics.median(getattr(run, each) for run in runs) for each in ("value", "cpu", "memory")))


def row(goal: Goal, runs: Sequence[Figures]) -> str:
    """Return the goal's row of the table, with medians."""
    found = medians(runs)
    shown = f"{found.value:,.0f}" if found.value >= 100 else f"{found.value:.2f}"
    verdict = goal.verdict(found)
    return f"| {goal.title} | {shown} {goal.unit} | {goal.bound()} | {verdict} | {found.cpu:.2f} | {found.memory:.0f} |"


def table(name: str, head: str, cases: Mapping[str, Case], row_of: Callable[[Case, int, int], str]) -> None:
    """Measure cases as the command line says, and print the table; ``--write`` writes it into the document.

    :param name: the name of the table in the document.
    :param row_of: returns the row of a case; called with the megabytes and the number of rounds.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks.{name.replace('-', '_')}")
    parser.add_argument("--case", nargs="+", choices=cases, default=list(cases))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=100, help="before compression")
    parser.add_argument("--write", action="store_true", help=f"write the table into {_DOCUMENT}")
    args = parser.parse_args()
    lines = [head]
    for case in args.case:
        lines.append(row_of(cases[case], args.megabytes, args.rounds))
        print(lines[-1], flush=True)
    if args.write:
        _DOCUMENT.write_text(insert(_DOCUMENT.read_text(), name, "\n".join(lines)))


def main() -> None:
    head = "| path | measured | goal | | CPU s | MiB |\n|---|---|---|---|---|---|"
    table("agent-goals", head, GOALS, lambda goal, size, rounds: row(goal, measure(goal, size, rounds)))


if __name__ == "__main__":
    main()
