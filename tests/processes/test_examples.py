"""Every program of ``examples/`` does what it says, against a real server."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from producer.server import LogHubServer

from .child import LOGSTORE, PROJECT, Child, Ended, environment_for, until
from .interpreters import ROOT

EXAMPLES = ROOT / "examples"
Run = Callable[..., Ended]
#: Starts a web server with these arguments; returns its process and its address.
Serve = Callable[..., tuple[subprocess.Popen[str], str]]


@pytest.fixture
def serve(server: LogHubServer, tmp_path: Path) -> Iterator[Serve]:
    started: list[subprocess.Popen[str]] = []

    def starter(*command: str) -> tuple[subprocess.Popen[str], str]:
        log = tmp_path / "web.log"
        with log.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=EXAMPLES,
                env=environment_for(server.endpoint, server),
                stdout=stream,
                stderr=stream,
                text=True,
            )
        started.append(process)
        until(lambda: _address(log) or process.poll() is not None)
        address = _address(log)
        assert address, log.read_text()
        return process, address

    yield starter
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def _address(log: Path) -> str:
    match = re.search(r"(?:running on|Listening at:) (http://127\.0\.0\.1:\d+)", log.read_text())
    return match.group(1) if match else ""


def _fields(server: LogHubServer, name: str) -> Counter[str]:
    return Counter(str(log.fields[name]) for log in server.logs(PROJECT, LOGSTORE))


def test_every_example_is_listed() -> None:
    """The folder's list names every example."""
    listed = set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))
    assert {path.name for path in EXAMPLES.glob("[!_]*.py")} <= listed


def test_callbacks_tell_of_deliveries_and_failures(run: Run, server: LogHubServer) -> None:
    """Four records are delivered; the one with an unknown key is kept."""
    ended = run(EXAMPLES / "callbacks.py")
    assert "InvalidAccessKeyId, attempts: 1" in ended.stdout, ended.stderr
    assert ended.stdout.endswith("delivered: {'INFO': 2, 'WARNING': 1, 'ERROR': 1}, undelivered: 1\n")
    assert server.count(PROJECT, LOGSTORE) == 4


def test_futures_can_be_awaited(run: Run, server: LogHubServer) -> None:
    """A hundred coroutines await their records; a failure is raised at its await."""
    ended = run(EXAMPLES / "asyncio_await.py")
    assert ended.stdout == "delivered: 100\nfailed: InvalidAccessKeyId\n", ended.stderr
    assert server.count(PROJECT, LOGSTORE) == 100


def test_log_of_a_run_tells_the_attempts_and_no_secret(run: Run, server: LogHubServer) -> None:
    """Three attempts at a dead endpoint are listed; the access key's secret appears nowhere."""
    ended = run(EXAMPLES / "log_results.py")
    assert ended.stderr.count("INFO example: dead-project: None in") == 3, ended.stderr
    assert "accepted 2, delivered 1, failed 1, retried 2" in ended.stderr
    assert server.access_key_secret not in ended.stderr + ended.stdout
    assert server.count(PROJECT, LOGSTORE) == 1


def test_sigterm_delivers_everything_that_was_sent(start: Callable[..., Child], server: LogHubServer) -> None:
    """SIGTERM drains the producer, then ends the process."""
    child = start(EXAMPLES / "sigterm.py")
    child.wait_for("sent 20")
    child.signal(signal.SIGTERM)
    ended = child.end()
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    last = int(ended.words[-1]) if ended.stdout else 20
    stored = _fields(server, "n")
    assert set(stored.values()) == {1}
    # A record may be accepted without its line being printed.
    assert {str(number) for number in range(last + 1)} <= set(stored) <= {str(number) for number in range(last + 2)}


def test_record_that_was_stored_before_a_kill_is_delivered_by_the_next_run(
    run: Run, server: LogHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run is killed after its send; the second one delivers both records."""
    monkeypatch.setenv("CRASH", "1")
    assert run(EXAMPLES / "durable.py", tmp_path).returncode == -signal.SIGKILL
    assert server.count(PROJECT, LOGSTORE) == 0
    monkeypatch.delenv("CRASH")
    ended = run(EXAMPLES / "durable.py", tmp_path)
    assert ended.stdout == "on the disk: True, found here when it started: 1\n", ended.stderr
    assert server.count(PROJECT, LOGSTORE) == 2


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "two workers"])
def test_uvicorn_ends_the_lifespan_of_each_worker_on_sigterm_which_closes_the_producer(
    serve: Serve, server: LogHubServer, workers: tuple[str, ...]
) -> None:
    """uvicorn ends the lifespan of each worker on SIGTERM, which closes the producer."""
    process, address = serve("uvicorn", "--port", "0", *workers, "fastapi_lifespan:app")
    until(lambda: _answers(address))
    for number in range(50):
        answer = requests.post(f"{address}/log", json={"n": str(number)}, timeout=60)
        assert answer.status_code == 202
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert _fields(server, "n") == Counter(map(str, range(50)))


def test_web_application_delivers_its_log_from_dictconfig_when_it_stops(
    serve: Serve, server: LogHubServer, tmp_path: Path
) -> None:
    """uvicorn exits by the signal, without exit functions; the records that the lifespan flushes arrive."""
    where = {"endpoint": server.endpoint, "project": PROJECT, "logstore": LOGSTORE, "config": {"linger_ms": 60_000}}
    handlers = {
        "loghub": {"class": "loghub.integrations.logging.LogHubHandler", **where},
        "console": {"class": "logging.StreamHandler"},
    }
    configuration = tmp_path / "logging.json"
    root = {"level": "INFO", "handlers": [*handlers]}
    configuration.write_text(
        json.dumps({"version": 1, "disable_existing_loggers": False, "handlers": handlers, "root": root})
    )
    process, address = serve("uvicorn", "--port", "0", "--log-config", str(configuration), "fastapi_lifespan:app")
    until(lambda: _answers(address))
    requests.get(f"{address}/last", timeout=60)
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert any("GET /last" in message for message in _fields(server, "message"))


def _answers(address: str) -> bool:
    with suppress(requests.ConnectionError):
        return requests.get(address, timeout=60).status_code == 404
    return False


@pytest.mark.parametrize("worker", ["sync", "gevent"])
def test_preforked_workers_each_deliver_and_the_master_sends_its_record_once(
    worker: str, serve: Serve, server: LogHubServer
) -> None:
    """gunicorn loads the application, which sends on import, forks two workers and stops them on SIGTERM."""
    options = ("--preload", "--worker-class", worker, "--workers", "2", "-b", "127.0.0.1:0")
    process, address = serve("gunicorn", *options, "gunicorn_prefork:app")
    pids: Counter[str] = Counter()

    def both_answered() -> bool:
        pids[requests.get(f"{address}/{sum(pids.values())}", timeout=60).text.strip()] += 1
        return len(pids) == 2 and sum(pids.values()) >= 50

    until(both_answered)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert _fields(server, "event") == {"loaded": 1, "request": sum(pids.values())}
    requests_of = Counter(log.fields["pid"] for log in server.logs(PROJECT, LOGSTORE) if "path" in log.fields)
    assert requests_of == pids
