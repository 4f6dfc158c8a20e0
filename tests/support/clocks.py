"""Clocks for tests that run in one thread."""

from producer.runtime.clock import Deadline, Signal
from producer.testing import ManualClock


class JumpingClock(ManualClock):
    """A manual clock for a single thread: whoever waits finds that the time is over."""

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        """Move to the end of the wait; nobody else could put anything."""
        if deadline.at is None:
            raise AssertionError("a wait without an end, and no other thread to end it")
        self.advance(deadline.at - self.monotonic())
