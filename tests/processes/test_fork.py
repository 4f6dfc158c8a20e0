"""Fork: the child's producer starts empty and works; the parent's records are sent once, by the parent."""

from collections import Counter
from collections.abc import Callable

import pytest

from producer.server import LogHubServer

from .child import Ended, messages, numbered

Run = Callable[..., Ended]


def test_invariant_9_fork_before_the_first_send_leaves_both_working(
    python: str, run: Run, server: LogHubServer
) -> None:
    """Parent and child deliver their own records; neither flushes or closes."""
    ended = run("forks.py", "fork_before_first_send", python=python)
    assert ended.number("child_status") == 0, ended.stderr
    assert messages(server) == sorted(numbered("child", 300) + numbered("later", 300))


def test_invariant_9_fork_with_records_pending_sends_them_once_by_the_parent(
    python: str, run: Run, server: LogHubServer
) -> None:
    """The child starts empty, whatever the parent has pending."""
    ended = run("forks.py", "fork_with_records_pending", python=python)
    assert ended.number("child_status") == 0, ended.stderr
    assert ended.number("inherited") == 0
    assert messages(server) == sorted(numbered("child", 300) + numbered("early", 300) + numbered("later", 300))


def test_invariant_9_child_that_forks_again_keeps_its_own_records(run: Run, server: LogHubServer) -> None:
    """Three generations each have their own records, each stored exactly once."""
    ended = run("forks.py", "fork_twice")
    assert ended.number("child_status") == 0, ended.stderr
    expected = [text for name in ("child", "early", "grandchild", "later") for text in numbered(name, 300)]
    assert messages(server) == sorted(expected)


def test_invariant_9_futures_of_the_parent_raise_at_once_in_the_child(
    python: str, run: Run, server: LogHubServer
) -> None:
    """A parent's future raises in the child and names the delivering parent; no call hangs, no callback runs twice."""
    ended = run("forks.py", "fork_with_futures", python=python)
    assert ended.number("child_status") == 0, ended.stderr
    said = {name: ended.number(name) for name in ("done", "raised", "called_back", "quick")}
    assert said == {"done": 300, "raised": 300, "called_back": 300, "quick": 1}
    assert ended.stdout.count("told_in=") == 1
    assert messages(server) == sorted(numbered("child", 300) + numbered("early", 300) + numbered("later", 300))


def test_invariant_9_fork_while_threads_send_harms_neither_side(run: Run, server: LogHubServer) -> None:
    """The child does not wait for locks that other threads held at the fork."""
    ended = run("forks.py", "fork_while_threads_send")
    assert ended.number("failed_children") == 0, ended.stderr
    stored = Counter(text.partition("-")[0].rstrip("0123456789") for text in messages(server))
    assert stored == {"thread": ended.number("parent"), "child": 8 * 50}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_of_multiprocessing_that_neither_closes_nor_flushes_delivers(
    method: str, python: str, run: Run, server: LogHubServer
) -> None:
    """A child of multiprocessing ends by ``os._exit``, without the interpreter's exit handlers, and still delivers."""
    ended = run("multi.py", method, "own", python=python)
    assert ended.number("exitcode") == 0, ended.stderr
    assert messages(server) == sorted(numbered("child", 200) + numbered("parent", 200))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize(("what", "exitcode"), [("given", 0), ("stream", 0), ("fail", 5)])
def test_producer_and_stream_given_to_a_child_work_there(
    method: str, what: str, exitcode: int, run: Run, server: LogHubServer
) -> None:
    """Inherited or pickled, they carry their configuration and no records, even to a child that ends with an error."""
    ended = run("multi.py", method, what)
    assert ended.number("exitcode") == exitcode, ended.stderr
    assert messages(server) == sorted(numbered("child", 200) + numbered("parent", 200))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_process_pool_deliver_when_the_pool_ends(method: str, run: Run, server: LogHubServer) -> None:
    """A pool that shuts down lets its workers end; each one drains."""
    ended = run("pool.py", method)
    assert ended.number("tasks") == 10, ended.stderr
    assert len(set(messages(server))) == len(messages(server)) == 10 * 20
