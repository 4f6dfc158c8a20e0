"""A producer's resources are bounded, in child processes: CPU while it waits, memory when it is full."""

from collections.abc import Callable

import pytest

from .child import Child, Ended

Run = Callable[..., Ended]
MIB = 2**20


def test_the_import_takes_at_most_30_ms_of_cpu(run: Run) -> None:
    """The import takes at most 30 ms of CPU, and the first producer 300 ms, in the best of five processes."""
    ended = [run("first.py") for _ in range(5)]
    assert min(each.number("import") for each in ended) <= 30, ended
    assert min(each.number("producer") for each in ended) <= 300, ended


def test_invariant_7_idle_producer_and_one_with_a_dead_server_use_no_cpu(
    start: Callable[..., Child], dead_endpoint: str
) -> None:
    """An idle producer, and one with 1,000 batches for a server that is down, use less than 2 % of a core."""
    idle, dead = start("idle.py", "idle", 10), start("idle.py", "dead", 10, endpoint=dead_endpoint)
    ended = dead.end()
    assert ended.number("waiting") >= 998, ended.stderr  # one or two may be in an attempt
    assert ended.number("per_mille") < 20
    ended = idle.end()
    assert ended.number("waiting") == 0, ended.stderr
    assert ended.number("per_mille") < 20


@pytest.mark.parametrize("kind", ["small", "large", "tiny", "topics"])
def test_memory_with_a_stalled_server_stays_within_its_bound(kind: str, run: Run, stalled_endpoint: str) -> None:
    """The peak grows by at most 1.25 x the memory + 64 MiB, with records of 10 bytes to 2 KB and many topics."""
    _check_bound(run("memory.py", kind, 64 * MIB, endpoint=stalled_endpoint))


def test_memory_of_the_default_configuration_stays_within_its_bound(run: Run, stalled_endpoint: str) -> None:
    """A producer with the default configuration buffers at most 100 MiB."""
    ended = run("memory.py", "small", 0, endpoint=stalled_endpoint)
    assert ended.number("total") == 100 * MIB
    _check_bound(ended)


def test_memory_with_a_dead_server_stays_within_its_bound(run: Run, dead_endpoint: str) -> None:
    """Batches that wait for a retry, with their attempts, stay within the bound."""
    _check_bound(run("memory.py", "topics", 64 * MIB, endpoint=dead_endpoint))


def _check_bound(ended: Ended) -> None:
    total = ended.number("total")
    assert ended.number("used") > 0.99 * total, f"it is not full: {ended}"
    assert ended.number("start") + ended.number("growth") <= 1.25 * total + 64 * MIB


def test_topics_that_never_come_again_leave_no_memory_behind(run: Run) -> None:
    """After the first 15,000 topics, another 45,000 leave less than one object each, and no buffers.

    Up to 30,000 objects differ between two measurements, by how many of the 4,096 cached streams have their queue. The
    process's peak differs by some MiB, by the backlog of its threads. A buffer of 2 KiB per topic would be 90 MiB.
    """
    ended = run("topics.py", 4, 15_000)
    assert ended.number("delivered") == 60_000, ended.stderr
    assert ended.number("used") == 0
    assert ended.number("streams") <= 10_000
    assert ended.number("blocks") < 45_000
    assert ended.number("peak") < 16 * MIB


def test_failures_leave_no_memory_behind(run: Run) -> None:
    """Failed, split, retried and refused sends, and callbacks that raise, leave no memory allocated."""
    ended = run("failures.py", 3, 6_000)
    assert ended.number("accepted") == ended.number("settled") == 4 * 6_000, ended.stderr
    assert ended.number("failed") > 300
    assert ended.number("used") == 0
    assert ended.number("last") - ended.number("first") < 100_000
