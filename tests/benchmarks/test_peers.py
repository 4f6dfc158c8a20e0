"""The peers can be installed, deliver what they are timed for, and say why if they cannot."""

import fcntl
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.wire.speed import TWIN

from . import installation, peers
from .cases import Run
from .catalogue import all_cases
from .clients.protocol import QUANTILES, Job
from .peers import PEERS, Client, broker, prepare
from .programs import ClientProgram, ProgramError
from .samples import check
from .server import null_server, take_counts

COUNT, STREAMS, PATIENCE = 1200, 3, 60
# The first of these tests installs the peers, unless that was done before.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    return prepare(list(PEERS))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with null_server() as port:
        yield port


@pytest.fixture(scope="module")
def addresses(port: int, reasons: dict[str, str]) -> Iterator[dict[str, str]]:
    addresses = {"null": f"127.0.0.1:{port}"}
    if "kafka" in reasons:
        yield addresses
        return
    with broker() as address:
        yield addresses | {"kafka": address}


def tiny(way: str, address: str, **more: Any) -> Job:
    return Job(way=way, shape="web", address=address, streams=STREAMS, **{"count": COUNT} | more)


def must_run(name: str, reasons: dict[str, str]) -> None:
    """Skip the test, aloud, of a peer that cannot run here, for a reason that names what is missing or what failed."""
    if name in reasons:
        assert "was not found" in reasons[name] or "failed" in reasons[name]
        pytest.skip(f"{PEERS[name].title} is left out: {reasons[name]}")


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_delivers_all_logs_that_it_counts(
    name: str, reasons: dict[str, str], addresses: dict[str, str], port: int
) -> None:
    """All logs of several jobs of one process: by its own count, and by the server's, which holds these very logs."""
    must_run(name, reasons)
    with Client(name) as client:
        assert client.ways == PEERS[name].ways
        for way in client.ways:
            take_counts(port)
            count = COUNT if name != "otlp" else 10_000  # more than its queue takes, which drops the rest
            answer = client.run(tiny(way, addresses[PEERS[name].address], count=count), deadline=PATIENCE)
            check(Run(client=name, way=way, count=count, streams=STREAMS), answer, take_counts(port))
            assert answer.peak_bytes > 2**20


#: Kafka's own linger is 5 ms; with the others' 2 s half of the logs would wait longer than 0.5 s.
_LINGERED = 0.35


@pytest.mark.parametrize("name", ["official", "kafka", "java"])
def test_a_peer_takes_latencies_at_a_rate_and_shares_the_logs_among_threads(
    name: str, reasons: dict[str, str], addresses: dict[str, str]
) -> None:
    """Quantiles of each call and of each acknowledgement, which comes after the linger that was asked for."""
    must_run(name, reasons)
    job = tiny(PEERS[name].ways[0], addresses[PEERS[name].address], threads=2, rate=COUNT)
    job.options.update({"linger_ms": 100, "total_size_in_bytes": 32 * 2**20})
    with Client(name) as client:
        for _ in range(3):  # a JVM is slow at first, and the machine may be busy
            answer = client.run(job, deadline=PATIENCE)
            assert answer.delivered == COUNT
            if answer.ack_seconds[0] < _LINGERED:
                break
    for taken in (answer.send_seconds, answer.ack_seconds):
        assert len(taken) == len(QUANTILES)
        assert taken == sorted(taken)
    assert answer.send_seconds[0] < answer.ack_seconds[0]
    assert 0.01 < answer.ack_seconds[0] < _LINGERED


@pytest.mark.parametrize(("name", "way"), [("python_sdk", "logging"), ("otlp", "records")])
def test_each_integration_has_a_row_with_its_rate_and_the_time_of_a_call(
    name: str, way: str, reasons: dict[str, str], addresses: dict[str, str], port: int
) -> None:
    """One row of `make bench` each: the logs arrive at the rate that was asked for, and each call was timed."""
    line = f"{name}: {way}"
    cases = all_cases()
    assert line in cases["integrations"].runs
    assert line in cases["integrations-latency"].runs
    must_run(name, reasons)
    take_counts(port)
    job = tiny(way, addresses["null"], rate=COUNT)
    with Client(name) as client:
        answer = client.run(job, deadline=PATIENCE)
    check(Run(client=name, way=way, count=COUNT), answer, take_counts(port))
    assert len(answer.send_seconds) == len(QUANTILES)
    assert answer.send_seconds == sorted(answer.send_seconds)
    assert answer.seconds > COUNT / job.rate / 2


def answering(code: str) -> tuple[str, ...]:
    """A program that names a way, and then does what ``code`` says."""
    return (sys.executable, "-c", f"import sys; print('[\"way\"]', flush=True); input(); {code}")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("sys.exit('out of luck')", "ended with status 1; stderr:\nout of luck"),
        ("print('out of luck', flush=True); input()", "answered 'out of luck"),
        ("print('{}', flush=True); input()", "answered '{}"),
        ("input()", "said nothing for 0.2 s, its deadline"),
    ],
)
def test_a_client_that_dies_talks_nonsense_or_hangs_is_an_error_that_says_so(code: str, what: str) -> None:
    """With what it wrote to stderr."""
    deadline = 0.2 if "nothing" in what else PATIENCE
    with ClientProgram(answering(code)) as client, pytest.raises(ProgramError, match=re.escape(what)):
        client.run(tiny("way", ""), deadline=deadline)


def test_a_client_that_cannot_start_is_an_error() -> None:
    """With what it wrote to stderr, and nothing is left of it."""
    with pytest.raises(ProgramError, match="no peer of that name"):
        ClientProgram((sys.executable, "-c", "raise SystemExit('no peer of that name')"))


def test_a_client_gets_no_proxy_and_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to loopback use no proxy, and coverage.py does not slow the client down."""
    for name in ("HTTP_PROXY", "https_proxy", "COVERAGE_PROCESS_CONFIG"):
        monkeypatch.setenv(name, "set")
    code = "import os, sys; sys.exit(' '.join(name for name, value in os.environ.items() if value == 'set') or 'none')"
    with ClientProgram(answering(code)) as client, pytest.raises(ProgramError, match=r"stderr:\nnone$"):
        client.run(tiny("way", ""), deadline=PATIENCE)


def test_a_pure_client_has_no_compiled_module_in_memory() -> None:
    """Its process has none of the compiled modules in memory; the other one has, where they were built."""
    found = {}
    for name in ("ours", "pure"):
        with null_server() as port, Client(name) as client:
            answer = client.run(tiny("send", f"127.0.0.1:{port}"), deadline=PATIENCE)
            assert answer.delivered == COUNT
            found[name] = "_open_records." in Path(f"/proc/{client.pid}/maps").read_text()
    assert found == {"ours": TWIN == "native", "pure": False}


def test_a_client_that_cannot_make_the_logs_gets_them_in_a_file() -> None:
    """Those of the shape, with the streams; the file goes with the client."""
    code = (
        "import json; job = json.loads(sys.stdin.readline()); path = job['options']['content']; "
        "content = json.load(open(path)); n = len(content['logs']) + len(content['streams']); "
        "print(json.dumps(dict(seconds=0, cpu_seconds=0, peak_bytes=0, delivered=n, figures={path: 0})), flush=True); "
        "input()"
    )
    with ClientProgram(answering(code.replace("input(); ", "", 1)), with_content=True) as client:
        client.say("")
        answer = client.run(tiny("way", ""), deadline=PATIENCE)
        (path,) = answer.figures
        assert Path(path).exists()
    assert answer.delivered == 1009 + STREAMS
    assert not Path(path).exists()


def test_a_peer_is_left_out_with_the_reason_where_its_tools_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No Maven, no Java producer; a package that cannot be had, none of the Python peers."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "peers.txt").write_text(f"nothing @ file://{tmp_path}/nothing-1-py3-none-any.whl")
    monkeypatch.setattr(installation, "REQUIREMENTS", tmp_path / "peers.txt")
    told: list[str] = []
    reasons = prepare(["java", "otlp", "kafka", "ours"], told.append, folder=tmp_path / "bench")
    assert reasons["java"] == "`java` was not found; it takes Maven and a JDK, 11 or newer"
    assert reasons["otlp"] == reasons["kafka"] == "pip failed (status 1); what it said is in .bench/python.log"
    assert "ours" not in reasons
    assert told == ["installing the Python peers"]
    assert "nothing-1" in (tmp_path / "bench" / "python.log").read_text()


def test_the_stamp_is_written_last_what_was_interrupted_is_made_again_from_nothing(tmp_path: Path) -> None:
    """The stamp is written last: what was interrupted is made again, from nothing."""
    target = tmp_path / "python"

    def make(source: bytes, fails: bool = False) -> bool:
        with installation.once(target, source) as needed:
            if needed:
                target.mkdir()
            if fails:
                raise installation.NotInstalledError
        return needed

    with pytest.raises(installation.NotInstalledError):
        make(b"1", fails=True)
    assert [make(source) for source in (b"1", b"1", b"2", b"2")] == [True, False, True, False]


def test_only_one_process_installs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others wait for it."""
    refused: list[bool] = []

    def install(folder: Path, log: object) -> None:
        with (folder / "lock").open("w") as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        refused.append(True)

    monkeypatch.setattr(peers, "install_python", install)
    prepare(["otlp"], folder=tmp_path)
    assert refused == [True]


def test_the_command_prints_every_peer_with_its_version_or_the_reason(
    reasons: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As the Makefile calls it."""
    assert peers.main() == 0
    printed = capsys.readouterr().out
    pins = dict(line.split("==") for line in installation.REQUIREMENTS.read_text().split() if "==" in line)
    for name, peer in PEERS.items():
        version = "0.3.24, openjdk" if peer.is_java else pins[peer.package]
        assert f"{peer.title} {reasons.get(name, version)}" in printed.replace("is left out: ", "")
