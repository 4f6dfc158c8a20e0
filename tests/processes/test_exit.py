"""Accepted records are delivered, or reported as lost, when a real process exits."""

import signal
from collections.abc import Callable

import pytest

from producer.server import LogHubServer
from tests.support.waiting import allowed

from .child import Child, Ended, messages, numbered, until

#: Seconds that the interpreter's end and a busy machine add to an exit.
BUSY = 4.0

Run = Callable[..., Ended]
Start = Callable[..., Child]


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("return", 0),
        ("sys_exit", 3),
        ("exception", 1),
        ("interrupt", -signal.SIGINT),
        ("daemon_thread", 0),
        ("plain_thread", 0),
        ("atexit_after", 0),
        ("atexit_before", 0),
        ("atexit_flush", 0),
    ],
)
def test_program_that_ends_without_close_delivers_everything_once(
    mode: str, code: int, python: str, run: Run, server: LogHubServer
) -> None:
    """The interpreter's exit waits for the records, however the program ended, on every Python."""
    ended = run("exits.py", mode, 500, python=python)
    assert ended.returncode == code, ended.stderr
    assert messages(server) == numbered("record", 500)
    assert "interpreter shutdown" not in ended.stderr
    assert ("Traceback" in ended.stderr) == (mode in {"exception", "interrupt"}), ended.stderr


def test_send_after_the_exit_has_drained_the_producer_raises_aloud(run: Run, server: LogHubServer) -> None:
    """A handler registered before the import runs after the drain; its send raises."""
    ended = run("exits.py", "atexit_when_drained", 5)
    assert messages(server) == numbered("record", 5)
    assert "ProducerClosedError: the producer is closed" in ended.stderr


def test_thread_that_outlives_the_main_thread_has_its_records_sent_while_it_runs(
    python: str, run: Run, server: LogHubServer
) -> None:
    """A thread's first send delivers before the exit, even where no thread can start any more (3.12)."""
    ended = run("exits.py", "thread_waits", 1, python=python)
    assert ended.number("delivered") >= 1, ended.stderr
    assert ended.stderr.count("no threads can be started") <= 1


def test_os_exit_loses_unflushed_records_documented_flush_first(run: Run, server: LogHubServer) -> None:
    """``os._exit`` loses unflushed records (documented: flush first)."""
    assert run("exits.py", "os_exit", 5).returncode == 0
    assert messages(server) == []


def test_sigterm_without_a_handler_loses_unsent_records_documented_examples_sigterm_py(
    start: Start, server: LogHubServer
) -> None:
    """SIGTERM without a handler loses unsent records (documented: ``examples/sigterm.py``)."""
    child = start("exits.py", "sigterm", 5)
    child.wait_for("sent")
    child.signal(signal.SIGTERM)
    assert child.end().returncode == -signal.SIGTERM
    assert messages(server) == []


def test_exit_with_dead_server_says_how_many_records_are_lost(python: str, run: Run, dead_endpoint: str) -> None:
    """Callbacks get every failure, and stderr the number, even if logging was not configured."""
    ended = run("dead.py", 300, "plain", endpoint=dead_endpoint, python=python)
    assert ended.returncode == 0
    assert "300 records could not be delivered" in ended.stderr
    assert ended.number("told") == 300
    assert ended.exit_seconds < allowed(1 + BUSY)
    assert "Traceback" not in ended.stderr


def test_exit_with_stalled_server_takes_no_longer_than_the_drain_timeout(run: Run, stalled_endpoint: str) -> None:
    """A request that waits for its response does not delay the exit, whatever its read timeout."""
    ended = run("dead.py", 300, "plain", endpoint=stalled_endpoint)
    assert "300 records could not be delivered" in ended.stderr
    assert ended.number("told") == 300
    assert 1 <= ended.exit_seconds < allowed(1 + BUSY)


def test_exit_with_six_stalled_producers_drains_them_at_the_same_time(run: Run, stalled_endpoint: str) -> None:
    """Each producer has its own drain timeout; all drain concurrently."""
    ended = run("dead.py", 300, "six", endpoint=stalled_endpoint)
    assert ended.stderr.count("300 records could not be delivered") == 6
    assert 1 <= ended.exit_seconds < allowed(1 + BUSY)


def test_interrupt_as_the_drain_begins_does_not_skip_it(python: str, run: Run, dead_endpoint: str) -> None:
    """Ctrl-C before the first instruction of the exit's drain neither skips it nor hides the number of lost records."""
    ended = run("dead.py", 300, "at once", endpoint=dead_endpoint, python=python)
    assert "KeyboardInterrupt" in ended.stderr
    assert "300 records could not be delivered" in ended.stderr
    assert ended.number("told") == 300


@pytest.mark.parametrize("mode", ["interrupted", "twice"])
def test_ctrl_c_during_the_exits_drain_ends_it_at_once_and_prints_the_number_of_lost_records(
    mode: str, start: Start, stalled_endpoint: str
) -> None:
    """Ctrl-C during the exit's drain ends it at once and prints the number of lost records, also if pressed again."""
    child = start("dead.py", 300, mode, endpoint=stalled_endpoint)
    child.wait_for("exiting")
    # The drain starts a moment later; a user would press again, too.
    until(lambda: child.signal(signal.SIGINT) or child.ended_within(0.5), seconds=10)
    assert "300 records could not be delivered" in child.end().stderr
