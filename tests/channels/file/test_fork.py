"""Forks: the directory stays the parent's, and a child can neither use nor harm it, nor hang."""

import subprocess
import sys
from pathlib import Path

import pytest

from producer.channels import FileChannel
from tests.channels.helpers import drained, put

_BEGIN = """
import hashlib, os, pathlib, signal, sys, threading
from producer.channels import Event, FileChannel
from producer.model.errors import ChannelClosedError, ChannelLockedError
from producer.runtime.locks import Lock

OPTIONS = dict(minimum_free_space=0, checkpoint_interval=None, reserve=0, keep_alive=0)
directory = pathlib.Path(sys.argv[1])
channel = FileChannel(directory / "c", **OPTIONS)

def put(channel, *bodies):
    with channel.transaction() as transaction:
        transaction.put_many([Event({}, body.encode()) for body in bodies])

def taken(channel):
    with channel.transaction() as transaction:
        return [event.body.decode() for event in transaction.take(100)]

def content():
    files = sorted(path for path in (directory / "c").rglob("*") if path.is_file())
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]

def refused(use):
    try:
        use()
    except ChannelClosedError as error:
        assert "it belongs to the parent of this process; ProcessFileChannel gives each its own" in str(error)
        return True
    return False

def locked():
    try:
        FileChannel(directory / "c", **OPTIONS).close()
    except ChannelLockedError:
        return True
    return False

def ended(pid):
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
"""


def run(directory: Path, program: str) -> str:
    """Run a program in a process that may fork; return its output."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _BEGIN + program, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_child_can_use_nothing_and_changes_nothing(tmp_path: Path) -> None:
    """A child's use of the channel is refused with advice, and changes nothing."""
    program = """
put(channel, "a", "b")
putting, taking = channel.transaction(), channel.transaction()
putting.begin(); taking.begin()
putting.put(Event({}, b"late")); taking.take()
before = content()
pid = os.fork()
if pid == 0:
    uses = [channel.transaction, channel.sync, channel.checkpoint, lambda: channel.checkpoint(force=True),
            putting.commit, taking.commit, taking.take, lambda: taking.acknowledge([Event({}, b"", 1)])]
    assert all(refused(use) for use in uses)
    assert not channel.stats().open
    assert repr(channel).endswith("closed>")
    taking.rollback()
    putting.rollback()
    channel.close()
    assert content() == before
    sys.exit(0)  # with all that an interpreter does at its end
assert ended(pid) == 0
assert content() == before
taking.commit()
putting.commit()
print(taken(channel), channel.stats().open)
"""
    assert run(tmp_path, program) == "['b', 'late'] True\n"


@pytest.mark.parametrize("how", ["sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_lock_of_the_parent_survives_the_end_of_the_child(tmp_path: Path, how: str) -> None:
    """The parent keeps its lock when a child ends."""
    program = f"""
pid = os.fork()
if pid == 0:
    {how}
ended(pid)
put(channel, "after")
print(locked(), taken(channel))
"""
    assert run(tmp_path, program) == "True ['after']\n"


def test_the_lock_is_free_when_the_parent_closes_though_the_child_lives(tmp_path: Path) -> None:
    """The lock is free once the parent closes, even if a child lives."""
    program = """
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)
os.close(reading)
put(channel, "a")
channel.close()
print(locked())
os.close(writing)
ended(pid)
"""
    assert run(tmp_path, program) == "False\n"


def test_locks_that_threads_of_the_parent_held_do_not_stop_the_child(tmp_path: Path) -> None:
    """No call in the child waits for a lock that a parent's thread held."""
    program = """
put(channel, "a")
LOCK = type(Lock())

def locks(thing, seen):
    if id(thing) not in seen and type(thing).__module__.startswith("producer."):
        seen[id(thing)] = thing
        for part in getattr(thing, "__dict__", {}).values():
            if isinstance(part, LOCK):
                seen[id(part)] = part
            locks(part, seen)
    return [part for part in seen.values() if isinstance(part, LOCK)]

held = locks(channel, {})
assert len(held) >= 4, held  # a fork waits for the lock of the notes
for each in held:
    inside, go = threading.Event(), threading.Event()
    def hold():
        with each:
            inside.set()
            go.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        assert not channel.stats().open
        assert refused(channel.transaction) and refused(channel.checkpoint) and refused(channel.sync)
        channel.synced_sequence
        channel.close()
        os._exit(0)
    go.set()
    thread.join()
    assert ended(pid) == 0, each
print(taken(channel))
"""
    assert run(tmp_path, program) == "['a']\n"


def test_the_child_may_have_a_channel_of_its_own(tmp_path: Path) -> None:
    """A child can open its own channel, and the parent's directory after it is closed."""
    program = """
put(channel, "parent")
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(writing)
    with FileChannel(directory / "child", minimum_free_space=0, checkpoint_interval=0.01) as own:
        checkpoints = own.stats().file.checkpoints
        put(own, "child")
        while own.stats().file.checkpoints == checkpoints:
            os.sched_yield()
        os.read(reading, 1)
    with FileChannel(directory / "c", **OPTIONS) as heir:
        assert taken(heir) == ["parent"]
    os._exit(0)
os.close(reading)
channel.close()
os.close(writing)
print(ended(pid))
"""
    assert run(tmp_path, program) == "0\n"
    options = {"minimum_free_space": 0, "checkpoint_interval": None, "keep_alive": 0}
    with FileChannel(tmp_path / "child", **options) as channel:  # type: ignore[arg-type]
        assert drained(channel) == ["child"]


def test_a_program_that_is_started_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """A started program does not inherit the lock."""
    options = {"minimum_free_space": 0, "checkpoint_interval": None, "keep_alive": 0}
    channel = FileChannel(tmp_path / "c", **options)  # type: ignore[arg-type]
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as other:
        put(channel, "a")
        channel.close()
        with FileChannel(tmp_path / "c", **options) as again:  # type: ignore[arg-type]
            assert drained(again) == ["a"]
        assert other.poll() is None
        other.communicate()
