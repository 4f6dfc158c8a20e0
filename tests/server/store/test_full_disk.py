"""A full disk: errors, stored data, and recovery."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from producer import Producer, ProducerConfig, ProjectConfig
from producer.server import LogHubServer, ServerStartError
from producer.server.store import database

from ...support.waiting import eventually
from ..client import LOGSTORE, PROJECT, Client, error_of, log_group

ROOT = Path(__file__).parents[3]
MIB = 1 << 20

#: A server whose files have a limit of size, which lines of stdin raise.
LIMITED = """
import resource, signal, sys
from producer.server import LogHubServer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
with LogHubServer(data=sys.argv[1]) as server:
    print(server.port, flush=True)
    for line in sys.stdin:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(line), resource.RLIM_INFINITY))
        print("raised", flush=True)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LogHubServer]:
    with LogHubServer(data=tmp_path) as server:
        yield server


def make_room(server: LogHubServer, pages: int) -> None:
    """Let the database grow by so many pages of 4 KiB."""

    def limit(connection):  # type: ignore[no-untyped-def]
        (used,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {used + pages}").fetchone()

    server._service.store._database.submit(limit).result()


def messages(server: LogHubServer) -> list[str]:
    return [text for log in server.logs(PROJECT, LOGSTORE) if isinstance(text := log.fields["message"], str)]


def put(server: LogHubServer, name: str, size: int) -> bool:
    """Return True if an incompressible LogGroup of that name was stored; assert the form of a refusal."""
    with Client(server) as client:
        answer = client.put(log_group(name, b"\xff" + os.urandom(size)))
    if answer.status_code != 200:
        assert error_of(answer) == (500, "InternalServerError")
    return answer.status_code == 200


def test_a_write_to_a_full_disk_is_a_500_and_works_again_with_free_space(
    server: LogHubServer, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A write is a 500 with the remedy and stores nothing; reads go on, and with free space writes do."""
    client.server = server
    assert client.put(log_group("before")).status_code == 200
    make_room(server, 50)
    answer = client.put(log_group("half", b"\xff" + os.urandom(MIB)))
    assert error_of(answer) == (500, "InternalServerError")
    assert "nothing was stored; free space" in answer.json()["errorMessage"]
    assert [(record.name, record.exc_info) for record in caplog.records] == [("loghub.server", None)]
    assert "free space" in caplog.text
    assert messages(server) == ["before"]
    assert client.get(f"/logstores/{LOGSTORE}/shards").status_code == 200
    make_room(server, 10_000)
    assert client.put(log_group("after", b"\xff" + os.urandom(MIB))).status_code == 200
    server.close()
    with LogHubServer(data=tmp_path) as again:
        assert sorted(messages(again)) == ["after", "before"]


def test_refusals_are_logged_at_once_and_then_once_a_minute_with_their_number(
    server: LogHubServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals are logged at once, and then once a minute with their number; each writer gets an error."""
    assert put(server, "first", 100)
    make_room(server, 0)
    assert [put(server, "large", 100_000) for _ in range(5)] == [False] * 5
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["1 request was refused"]
    monkeypatch.setattr(database, "_INTERVAL", 0.0)
    assert not put(server, "large", 100_000)
    assert caplog.records[-1].getMessage().startswith("5 requests were refused: the store's disk is full")
    assert len(caplog.records) == 2


def test_on_a_full_disk_exactly_the_writes_answered_200_are_stored(server: LogHubServer, tmp_path: Path) -> None:
    """Of many writers in shared transactions exactly those answered 200 are stored, also after a restart."""
    assert put(server, "first", 100)
    make_room(server, 300)
    names = [f"{kind}-{number}" for number in range(12) for kind in ("large", "small")]
    with ThreadPoolExecutor(12) as writers:
        stored = list(writers.map(lambda name: put(server, name, 300_000 if name[0] == "l" else 100), names))
    assert {True, False} == set(stored)
    good = ["first", *(name for name, is_stored in zip(names, stored, strict=True) if is_stored)]
    assert sorted(messages(server)) == sorted(good)
    server.close()
    with LogHubServer(data=tmp_path) as again:
        assert sorted(messages(again)) == sorted(good)


def test_a_producer_sends_again_until_there_is_room(server: LogHubServer) -> None:
    """The producer retries while the disk is full, and its record is stored once."""
    assert put(server, "first", 100)
    make_room(server, 0)
    keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
    project = ProjectConfig(PROJECT, endpoint=server.endpoint, **keys)
    config = ProducerConfig(base_retry_backoff_ms=10, max_retry_backoff_ms=10, retries=100_000, linger_ms=100)
    with Producer(project, config=config) as producer:
        future = producer.send(PROJECT, LOGSTORE, {"message": "patient " + os.urandom(50_000).hex()})
        eventually(lambda: [request.status for request in server.requests].count(500) > 1, "two refusals")
        make_room(server, 10_000)
        assert future.result(60).successful
    assert [message[:7] for message in messages(server)] == ["first", "patient"]


def test_files_that_cannot_grow_lose_nothing_that_was_answered(tmp_path: Path) -> None:
    """Writes are 500 at whatever step, and work with free space; after a kill every answered write is stored."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(2 * MIB)]
    good = []
    remote = LogHubServer()
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        remote._port = int(process.stdout.readline())
        stored = [put(remote, f"one-{number}", 300_000) for number in range(12)]
        assert (stored[0], stored[-1]) == (True, False)
        good += [f"one-{number}" for number, is_stored in enumerate(stored) if is_stored]
        process.stdin.write(f"{64 * MIB}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "raised\n"
        assert put(remote, "after", 300_000)
        process.kill()
    remote.close()
    with LogHubServer(data=tmp_path) as server:
        assert sorted(messages(server)) == sorted([*good, "after"])


def test_a_disk_without_room_for_the_tables_is_refused_in_words(tmp_path: Path) -> None:
    """A server without room for its tables reports it at start, and releases the directory."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)
    assert ServerStartError.__name__ in done.stderr
    assert "cannot be used" in done.stderr
    with LogHubServer(data=tmp_path) as server:
        assert put(server, "x", 100)
