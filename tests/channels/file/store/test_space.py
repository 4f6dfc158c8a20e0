"""Space: the bytes that puts leave free on the disk."""

from typing import Any, cast

import pytest

from producer.channels.file.store.disk import Disk
from producer.channels.file.store.space import FRESH, Space
from producer.model.errors import DiskFullError
from producer.testing import ManualClock


class _Filling:
    """A disk of a hundred bytes, written only by the channel."""

    written = 0

    def free(self, _path: str) -> int:
        return 100 - self.written


def test_bytes_written_since_the_last_reading_of_the_free_space_count() -> None:
    """Bytes written since the last reading of the free space count."""
    disk = _Filling()
    space = Space(cast("Disk", disk), "c", ["/c"], minimum=30, reserve=0, clock=ManualClock())
    for size in (40, 30):
        space.admit(size)
        disk.written += size
        space.used(size)
    with pytest.raises(DiskFullError):
        space.admit(10)


def test_freed_space_is_found_at_once_by_the_next_put() -> None:
    """Freed space is found at once by the next put."""
    disk: Any = _Filling()
    space = Space(cast("Disk", disk), "c", ["/c"], minimum=30, reserve=0, clock=ManualClock())
    disk.written = 90
    with pytest.raises(DiskFullError):
        space.admit(10)
    disk.written = 0
    space.admit(10)


def test_puts_leave_enough_space_for_a_checkpoint() -> None:
    """Puts leave enough space for a checkpoint."""
    disk: Any = _Filling()
    taking, clock = [10], ManualClock()
    space = Space(cast("Disk", disk), "c", ["/c"], minimum=30, reserve=0, checkpoint=lambda: taking[0], clock=clock)
    space.admit(30)
    taking[0] = 71
    clock.advance(FRESH)
    with pytest.raises(DiskFullError, match="101"):
        space.admit(30)
