"""Forked children of a server's process: they leave its data alone, and their calls fail at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from producer.server import LogHubServer, ServerStartError

from .client import LOGSTORE, PROJECT

ROOT = Path(__file__).parents[2]

#: A server with data in a process that forks, stores more after its child has ended, and is killed.
PARENT = """
import gc, os, signal, sys
from producer.server import LogHubServer
from tests.server.client import Client, log_group

directory, how = sys.argv[1:]
server = LogHubServer(data=directory).start()
client = Client(server)
for number in range(5):
    assert client.put(log_group(f"before {number}")).status_code == 200
child = os.fork()
if child == 0:
    client = None
    if how == "close":
        server.close()
    if how == "drop":
        # Beside this attribute, only the stack of a thread held the connection, and the child lacks that thread.
        server._service.store._database._connection = None
        server = None
        gc.collect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for number in range(5):
    assert client.put(log_group(f"after {number}")).status_code == 200
print("stored", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

#: A server whose child outlives it; the child prints a line when ready, and ends with its stdin.
ORPHAN = """
import os, signal, sys
from producer.server import LogHubServer

server = LogHubServer(data=sys.argv[1]).start()
child = os.fork()
if child == 0:
    print("alive", flush=True)
    sys.stdin.read()
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""

#: A child that uses its copy of the server once, within five seconds.
ASKS = """
import os, signal, sys
from producer.server import LogHubServer
from tests.server.client import Client, log_group

with LogHubServer() as server, Client(server) as client:
    assert client.put(log_group("x")).status_code == 200
    groups = server.iter_log_groups("my-project", "app-log")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            print("answer", eval(sys.argv[1]), flush=True)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert client.put(log_group("y")).status_code == 200
    assert server.count("my-project", "app-log") == 2
    assert [group.count for group in groups] == [1, 1]
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own and return its result."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, cwd=ROOT)


def messages(server: LogHubServer) -> list[str]:
    return [str(log.fields["message"]) for log in server.logs(PROJECT, LOGSTORE)]


@pytest.mark.parametrize("how", ["exit", "drop", "close"])
def test_a_child_takes_nothing_from_its_parents_data(how: str, tmp_path: Path) -> None:
    """A child that exits, drops its copy or closes it removes nothing that the parent has stored."""
    done = run(PARENT, str(tmp_path), how)
    assert done.stdout == "stored\n", done.stderr
    with LogHubServer(data=tmp_path) as server:
        stored = messages(server)
    assert stored == [f"{when} {number}" for when in ("before", "after") for number in range(5)]


def test_a_child_does_not_keep_the_data_of_a_parent_that_has_ended(tmp_path: Path) -> None:
    """Another server can take a killed parent's data while the child lives: the child has no copy of the lock."""
    command = [sys.executable, "-c", ORPHAN, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as parent:
        assert parent.stdout.readline() == "alive\n"
        parent.wait(60)
        with LogHubServer(data=tmp_path):
            pass
        parent.stdin.close()


def test_the_end_of_a_forked_child_which_had_a_copy_of_the_locks_file_unlocks_nothing(tmp_path: Path) -> None:
    """The end of a forked child, which had a copy of the lock's file, unlocks nothing."""
    with LogHubServer(data=tmp_path):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(ServerStartError, match="in use by another server"):
            LogHubServer(data=tmp_path)


@pytest.mark.parametrize(
    "asked",
    [
        "server.count('my-project', 'app-log')",
        "server.logs('my-project', 'app-log')",
        "server.log_groups('my-project', 'app-log')",
        "next(groups)",
        "server.requests",
        "server.clear_requests()",
        "server.faults",
        "server.start()",
    ],
)
def test_a_call_on_a_childs_copy_fails_at_once_instead_of_blocking(asked: str) -> None:
    """A call on a child's copy fails at once instead of blocking, and the parent goes on."""
    done = run(ASKS, asked)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ForkedServerError "), done.stdout
    assert "forked" in done.stdout


@pytest.mark.parametrize("asked", ["server.close()", "server.stop()", "server.endpoint", "repr(server)"])
def test_a_child_may_close_its_copy_and_read_where_the_parent_listens(asked: str) -> None:
    """A child may leave a with block, and can be a client of the parent's server."""
    done = run(ASKS, asked)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("answer "), done.stdout
