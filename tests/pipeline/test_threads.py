"""What threads of the pipeline do beside their work."""

from __future__ import annotations

from producer.pipeline.threads import stand_back
from tests.support.waiting import Call


class _Taken:
    """A lock that is free when it was asked for three times."""

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.released = 0

    def acquire(self, blocking: bool = True) -> bool:
        self.asked.append(blocking)
        return len(self.asked) == 3

    def release(self) -> None:
        self.released += 1


def test_who_stands_back_takes_no_place_in_the_line_for_a_lock() -> None:
    """It looks again and again until the lock is free, and leaves it free; on the main thread, which an interrupt may
    meet, it does nothing.
    """
    lock = _Taken()
    stand_back(lock)
    assert lock.asked == []
    Call(lambda: stand_back(lock)).result()
    assert lock.asked == [False] * 3
    assert lock.released == 1
