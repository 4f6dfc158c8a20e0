"""Provide clocks for tests that run in one thread."""

from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock


class JumpingClock(ManualClock):
    """A manual clock for a single thread: a wait ends at once, at its deadline."""

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        """Move to the deadline of the wait; in a single thread nothing can set the signal."""
        if deadline.at is None:
            raise AssertionError("a wait without an end, and no other thread to end it")
        self.advance(deadline.at - self.monotonic())
