"""One server for a data directory, whatever else opens its files."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from producer.runtime import directory_lock, forks
from producer.server import LogHubServer, ServerStartError
from producer.server.store import ownership

from ...support.held_locks import AskedFor
from ...support.waiting import Call, eventually
from ..client import LOGSTORE, PROJECT, Client, log_group
from ..process import ServerProcess

ROOT = Path(__file__).parents[3]

#: Opens a server on the data and prints whether it could.
SECOND = """
import sys
from producer.server import LogHubServer, ServerStartError
try:
    LogHubServer(data=sys.argv[1]).close()
except ServerStartError as error:
    print(error)
else:
    print("opened")
"""


def second_server(directory: Path) -> str:
    """Return the output of a server in another process on the data."""
    command = [sys.executable, "-c", SECOND, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, cwd=ROOT).stdout


def test_a_copy_of_the_files_does_not_let_a_second_server_in(tmp_path: Path) -> None:
    """A copy removes the process's SQLite locks; still no other server opens the data, here or in another process."""
    data = tmp_path / "data"
    with LogHubServer(data=data) as server, Client(server) as client:
        assert client.put(log_group("first")).status_code == 200
        shutil.copytree(data, tmp_path / "copy")
        assert "in use by another server" in second_server(data)
        with pytest.raises(ServerStartError, match="in use by another server"):
            LogHubServer(data=data)
        assert client.put(log_group("second")).status_code == 200
    with LogHubServer(data=data) as server:
        assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["first", "second"]


def test_the_message_names_the_directory_the_process_that_has_it_and_the_remedies(tmp_path: Path) -> None:
    """The message names the directory, the process that has it, and the remedies."""
    with ServerProcess(data=tmp_path) as first, pytest.raises(ServerStartError) as refused:
        LogHubServer(data=tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert f"process {first.process.pid}" in str(refused.value)
    assert "stop it, or use another directory" in str(refused.value)


def test_the_data_is_free_when_the_server_has_closed(tmp_path: Path) -> None:
    """A stopped server keeps its data; a closed or killed one releases it, and leaves the lock's file."""
    server = LogHubServer(data=tmp_path).start()
    server.stop()
    assert "in use by another server" in second_server(tmp_path)
    server.close()
    assert second_server(tmp_path) == "opened\n"
    with ServerProcess(data=tmp_path) as killed:
        killed.restart()
    with LogHubServer(data=tmp_path):
        pass


def test_data_that_cannot_be_opened_is_left_free(tmp_path: Path) -> None:
    """A server that fails to start holds no lock."""
    (tmp_path / "loghub.sqlite3").write_bytes(b"this is not a database " * 100)
    for _ in range(2):
        with pytest.raises(ServerStartError, match="cannot be used"):
            LogHubServer(data=tmp_path)
    assert directory_lock._held == set()


def test_a_directory_without_locks_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without locks the error names the directory and the reason."""

    def no_locks(file: int, how: int) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(directory_lock.fcntl, "flock", no_locks)
    with pytest.raises(ServerStartError, match=rf"{tmp_path.name} cannot be used \(.*not supported"):
        LogHubServer(data=tmp_path)
    assert directory_lock._held == set()


def test_a_fork_in_the_moment_of_the_lock_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child forked between opening and locking the file keeps no copy of it."""
    asked, end = threading.Event(), os.pipe()
    watched = [AskedFor(asked.set, lock=lock) if lock is directory_lock._lock else lock for lock in forks._held]
    monkeypatch.setattr(forks, "_held", watched)
    forking: list[Call] = []
    flock = fcntl.flock

    def fork_first(file: int, how: int) -> None:
        monkeypatch.setattr(directory_lock.fcntl, "flock", flock)
        forking.append(Call(lambda: forked_reader(*end)))
        eventually(lambda: asked.is_set() or forking[0].done)
        flock(file, how)

    monkeypatch.setattr(directory_lock.fcntl, "flock", fork_first)
    owned = ownership.own(tmp_path)
    child = forking[0].result()
    try:
        # As at the end of this process: without a release.
        owned.close()
        ownership.own(tmp_path).release()
    finally:
        os.close(end[1])
        os.close(end[0])
        os.waitpid(child, 0)
        owned.release()


def forked_reader(reading: int, writing: int) -> int:
    """Fork a child that runs the fork hooks and then waits for the pipe's end."""
    there, says = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.write(says, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.close(says)
    assert os.read(there, 1) == b"x"
    os.close(there)
    return child


def test_after_the_locks_file_is_deleted_the_directorys_own_lock_refuses_others(tmp_path: Path) -> None:
    """After the lock's file is deleted, the directory's own lock refuses others, and the owner stores nothing more."""
    data = tmp_path / "data"
    with LogHubServer(data=data) as server, Client(server) as client:
        assert client.put(log_group("first")).status_code == 200
        (data / ownership.LOCK_NAME).unlink()
        with pytest.raises(ServerStartError, match="in use by another server"):
            LogHubServer(data=data)
        answer = client.put(log_group("second"))
        assert answer.status_code == 500
        assert "loghub.lock was removed or replaced" in answer.text
    with LogHubServer(data=data) as server:
        assert [log.fields["message"] for log in server.logs(PROJECT, LOGSTORE)] == ["first"]
