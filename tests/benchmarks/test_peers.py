"""The peers can be installed and deliver the logs that they are timed for, or give the reason why not."""

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
# The first of these tests installs the peers unless they are installed.
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
    """Skip the test if the peer cannot run here; the reason must name the missing or failed command."""
    if name in reasons:
        assert "was not found" in reasons[name] or "failed" in reasons[name]
        pytest.skip(f"{PEERS[name].title} is left out: {reasons[name]}")


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_delivers_all_logs_that_it_counts(
    name: str, reasons: dict[str, str], addresses: dict[str, str], port: int
) -> None:
    """In several jobs of one process, a peer delivers all logs by its own count and the server's, unchanged."""
    must_run(name, reasons)
    with Client(name) as client:
        assert client.ways == PEERS[name].ways
        for way in client.ways:
            take_counts(port)
            count = COUNT if name != "otlp" else 10_000  # more than the queue holds, which drops the others
            answer = client.run(tiny(way, addresses[PEERS[name].address], count=count), deadline=PATIENCE)
            check(Run(client=name, way=way, count=count, streams=STREAMS), answer, take_counts(port))
            assert answer.peak_bytes > 2**20


#: Maximum seconds of the fastest acknowledgement if the job's linger was applied: Kafka's default is 5 ms, the others'
#: 2 s, with which half of the logs would wait longer than 0.5 s.
_LINGERED = 0.35


@pytest.mark.parametrize("name", ["official", "kafka", "java"])
def test_a_peer_measures_quantiles_at_a_rate_with_the_jobs_linger_and_threads(
    name: str, reasons: dict[str, str], addresses: dict[str, str]
) -> None:
    """A peer measures the quantiles of calls and acknowledgements at a rate, with the job's linger and threads."""
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
def test_each_integration_has_rows_and_logs_at_the_jobs_rate_with_each_call_timed(
    name: str, way: str, reasons: dict[str, str], addresses: dict[str, str], port: int
) -> None:
    """Each integration has rows in two cases; its logs arrive at the job's rate, and each call is timed."""
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
    """Return the command of a program that names a way, then executes ``code``."""
    return (sys.executable, "-c", f"import sys; print('[\"way\"]', flush=True); input(); {code}")


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("sys.exit('out of luck')", "ended with status 1; stderr:\nout of luck"),
        ("print('out of luck', flush=True); input()", "answered 'out of luck"),
        ("print('{}', flush=True); input()", "answered '{}"),
        ("input()", "printed nothing for 0.2 s, its deadline"),
    ],
)
def test_an_error_with_stderr_is_raised_if_the_client_dies_answers_nonsense_or_hangs(code: str, what: str) -> None:
    """An error with the client's stderr is raised if the client dies, answers nonsense or exceeds the deadline."""
    deadline = 0.2 if "nothing" in what else PATIENCE
    with ClientProgram(answering(code)) as client, pytest.raises(ProgramError, match=re.escape(what)):
        client.run(tiny("way", ""), deadline=deadline)


def test_an_error_with_stderr_is_raised_if_the_client_cannot_start() -> None:
    """An error with the client's stderr is raised if the client cannot start."""
    with pytest.raises(ProgramError, match="no peer of that name"):
        ClientProgram((sys.executable, "-c", "raise SystemExit('no peer of that name')"))


def test_a_client_gets_no_proxy_and_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client gets no proxy from the environment, and coverage.py does not measure it."""
    for name in ("HTTP_PROXY", "https_proxy", "COVERAGE_PROCESS_CONFIG"):
        monkeypatch.setenv(name, "set")
    code = "import os, sys; sys.exit(' '.join(name for name, value in os.environ.items() if value == 'set') or 'none')"
    with ClientProgram(answering(code)) as client, pytest.raises(ProgramError, match=r"stderr:\nnone$"):
        client.run(tiny("way", ""), deadline=PATIENCE)


def test_a_pure_client_has_no_compiled_module_in_memory() -> None:
    """A pure client has no compiled module in memory; the native one has them if they are built."""
    found = {}
    for name in ("ours", "pure"):
        with null_server() as port, Client(name) as client:
            answer = client.run(tiny("send", f"127.0.0.1:{port}"), deadline=PATIENCE)
            assert answer.delivered == COUNT
            found[name] = "_open_records." in Path(f"/proc/{client.pid}/maps").read_text()
    assert found == {"ours": TWIN == "native", "pure": False}


def test_a_client_that_cannot_make_the_logs_gets_them_in_a_file_removed_with_it() -> None:
    """A client that cannot make the logs gets them and the streams in a file, which is removed with the client."""
    code = (
        "import json; job = json.loads(sys.stdin.readline()); path = job['options']['content']; "
        "content = json.load(open(path)); n = len(content['logs']) + len(content['streams']); "
        "print(json.dumps(dict(seconds=0, cpu_seconds=0, peak_bytes=0, delivered=n, figures={path: 0})), flush=True); "
        "input()"
    )
    with ClientProgram(answering(code.replace("input(); ", "", 1)), with_content=True) as client:
        client.send_line("")
        answer = client.run(tiny("way", ""), deadline=PATIENCE)
        (path,) = answer.figures
        assert Path(path).exists()
    assert answer.delivered == 1009 + STREAMS
    assert not Path(path).exists()


def test_peers_without_their_tools_are_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Maven the Java peer is left out, and without a package all Python peers, with the reason."""
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "peers.txt").write_text(f"nothing @ file://{tmp_path}/nothing-1-py3-none-any.whl")
    monkeypatch.setattr(installation, "REQUIREMENTS", tmp_path / "peers.txt")
    steps: list[str] = []
    reasons = prepare(["java", "otlp", "kafka", "ours"], steps.append, folder=tmp_path / "bench")
    assert reasons["java"] == "`java` was not found; it takes Maven and a JDK, 11 or newer"
    assert reasons["otlp"] == reasons["kafka"] == "pip failed (status 1); its output is in .bench/python.log"
    assert "ours" not in reasons
    assert steps == ["installing the Python peers"]
    assert "nothing-1" in (tmp_path / "bench" / "python.log").read_text()


def test_an_interrupted_installation_is_repeated_from_an_empty_folder(tmp_path: Path) -> None:
    """An interrupted installation is repeated from an empty folder, since the stamp is written last."""
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


def test_only_one_process_installs_at_a_time_and_the_others_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one process installs at a time, and the others wait."""
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
    """The command prints every peer with its version, or with the reason why it is left out."""
    assert peers.main() == 0
    printed = capsys.readouterr().out
    pins = dict(line.split("==") for line in installation.REQUIREMENTS.read_text().split() if "==" in line)
    for name, peer in PEERS.items():
        version = "0.3.24, openjdk" if peer.is_java else pins[peer.package]
        assert f"{peer.title} {reasons.get(name, version)}" in printed.replace("is left out: ", "")
