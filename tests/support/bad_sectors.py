"""Simulate a disk with sectors that cannot be read."""

import errno

from producer.channels.file.store.format import FRAME_SIZE
from tests.channels.file.opening import put_record
from tests.support.sim_fs import SimFS


class BadSectors(SimFS):
    """A simulated disk on which some bytes cannot be read."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self.bad: dict[str, tuple[int, int]] = {}

    def read(self, file: int, size: int, offset: int) -> bytes:
        start, end = self.bad.get(self._path(file), (0, 0))
        if offset < end and offset + size > start:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(file, size, offset)

    def break_record(self, body: str) -> None:
        """Put the record of the event with this body into a bad sector."""
        path, record = put_record(self, body)
        self.bad[path] = record.offset + FRAME_SIZE, record.end
