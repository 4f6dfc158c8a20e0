"""Run the peers of ``producer ship`` on the same file: loops with the official libraries, Flume's taildir, our agent.

A loop is the program :mod:`.clients.shipping` in a new process. Flume has no sink for LogHub, so its events go to a
null sink; the agent sends. Rates do not include the start; CPU seconds are those of the whole process with its start,
as for ``ship``.
"""

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from . import agent
from .agent_goals import PATHS, deliver
from .clients.protocol import Job
from .cpu import CpuOfTree
from .installation import PYTHON, NotInstalledError
from .peers import PEERS as LIBRARIES
from .peers import prepare, versions
from .programs import ClientProgram
from .server import take_counts
from .ship_report import Result

_TIME = r"\[(?P<time>[^]]+)\]"
#: The pattern of an access log, as in the case ``regex``; the pattern with the fields of the parser ``apache``.
ACCESS = rf'(?P<host>\S+) \S+ \S+ {_TIME} "(?P<request>[^"]*)" (?P<status>\d+) (?P<bytes>\d+) "-" "(?P<agent>.*)"'
_APACHE = (
    rf"(?P<remote_addr>\S+) (?P<ident>\S+) (?P<remote_user>\S+) {_TIME} "
    r'"(?P<request>(?P<method>\S+) (?P<uri>\S+) (?P<protocol>[^"]+))" (?P<status>\d+) (?P<bytes>\S+) '
    r'"(?P<referer>[^"]*)" "(?P<user_agent>.*)"'
)
#: The patterns by case; ``text`` has none.
PATTERNS = {"text": None, "apache": _APACHE, "regex": ACCESS}


@dataclass(frozen=True, slots=True)
class Sample:
    """A file of access logs, with the number of its bytes and lines."""

    path: Path
    line_bytes: int
    lines: int


@dataclass(frozen=True, slots=True)
class Peer:
    """Another way to ship a file.

    :ivar cases: the cases of ``ship`` that it can run.
    :ivar share: the part of the megabytes that it ships, small for a slow peer.
    :ivar run: ships a sample for a case to the null server at a port.
    :ivar library: the key in :data:`.peers.PEERS` of the library that it needs.
    """

    cases: tuple[str, ...]
    share: float
    run: Callable[[str, Sample, int], Result]
    library: str = ""


def _loop(way: str) -> Callable[[str, Sample, int], Result]:
    def run(case: str, sample: Sample, port: int) -> Result:
        began, options = time.monotonic(), {"pattern": PATTERNS[case]}
        job = Job(way=way, shape=str(sample.path), count=sample.lines, address=f"127.0.0.1:{port}", options=options)
        with ClientProgram((str(PYTHON), "-m", "tests.benchmarks.clients.shipping")) as program:
            spent = CpuOfTree(program.pid)
            answer = program.run(job)
            spent.update()
        assert answer.delivered == sample.lines
        assert take_counts(port)["raw_bytes"] > sample.line_bytes
        return _result(sample.line_bytes, sample.line_bytes / answer.seconds / 1e6, spent.seconds, began)

    return run


def _flume(case: str, sample: Sample, _port: int) -> Result:
    began = time.monotonic()
    path = agent.CASES["memory"] if case == "text" else agent.EXTRACTED
    with agent.folders() as folder:
        os.link(sample.path, folder / "in" / "a.log")
        figures = agent.run("flume", path, folder, sample.lines)
    rate = figures.rate * sample.line_bytes / sample.lines / 1e6
    return _result(sample.line_bytes, rate, figures.cpu * sample.lines / 1e6, began)


def _agent(case: str, sample: Sample, port: int) -> Result:
    (parts,), began = PATHS["text" if case == "text" else "regex_loghub"], time.monotonic()
    with agent.folders() as folder:
        os.link(sample.path, folder / "in" / "a.log")
        figures = deliver(parts, folder, port, sample.lines, sample.line_bytes)
    assert take_counts(port)["raw_bytes"] > sample.line_bytes
    return _result(sample.line_bytes, figures.value, figures.cpu, began)


def _result(line_bytes: int, rate: float, cpu_seconds: float, began: float) -> Result:
    return Result(rate, cpu_seconds / line_bytes * 1e9, time.monotonic() - began)


#: The peers by their names on the command line; :data:`.ship_report.TITLES` has their titles.
PEERS = {
    "agent": Peer(("text", "regex"), 1, _agent),
    "official": Peer(("text", "apache", "regex"), 0.1, _loop("official"), library="official"),
    "put_logs": Peer(("text", "apache", "regex"), 0.02, _loop("put_logs"), library="python_sdk"),
    "flume": Peer(("text", "regex"), 0.5, _flume),
}


def sample_of(source: Path, share: float) -> Sample:
    """Return a sample with the first lines of a file, which are copied into a file beside it unless they are all."""
    size = source.stat().st_size
    if share == 1:
        return Sample(source, size, _lines(source))
    path = source.with_name(f"{source.stem}-{share:g}.log")
    if not path.exists():
        with source.open("rb") as file:
            first = file.read(max(1, int(size * share)))
            path.write_bytes(first[: first.rindex(b"\n") + 1])
    return Sample(path, path.stat().st_size, _lines(path))


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def install(names: Collection[str]) -> dict[str, str]:
    """Install the requirements of these peers; return the reason for each that cannot run here, by name."""
    failed = prepare({PEERS[name].library for name in names} - {""})
    reasons = {name: failed[PEERS[name].library] for name in names if PEERS[name].library in failed}
    if "flume" in names:
        try:
            agent.install_flume()
        except NotInstalledError as error:
            reasons["flume"] = str(error)
    return reasons


def described(names: Collection[str]) -> dict[str, str]:
    """Return the versions of the libraries of these peers, which must be installed."""
    found = versions(sorted({PEERS[name].library for name in names} - {""}))
    return {name: f"{LIBRARIES[name].title} {version}" for name, version in found.items()}
