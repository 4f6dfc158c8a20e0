"""An exception that a signal handler raises, wherever it comes, leaves a file channel whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.channels.file.opening import opened_channel, segments
from tests.channels.helpers import drained, events, opened, put
from tests.channels.interrupts import interrupted_everywhere
from tests.support.sim_fs import SimFS


def test_an_interrupted_commit_of_puts_keeps_no_segment_for_ever() -> None:
    """Whatever became of the puts: once everything is taken, the segment is deleted."""

    def scenario() -> tuple[Callable[[], Any], Callable[[bool], None]]:
        disk = SimFS()
        channel = opened_channel(disk, fsync="os")
        entered = channel.__enter__()
        transaction = opened(entered)
        transaction.put_many(events("ab"))

        def check(_interrupted: bool) -> None:
            put(entered, "c")
            assert drained(entered) in (["a", "b", "c"], ["c"])
            old = segments(disk)
            put(entered, "x" * 4000)
            drained(entered)
            entered.checkpoint()
            assert not set(segments(disk)) & set(old), "a segment that nobody needs"
            channel.__exit__(None, None, None)

        return transaction.commit, check

    interrupted_everywhere(scenario, at_least=100)
