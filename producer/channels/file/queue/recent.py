"""Recent: what was put a moment ago, so that a taker who keeps up with the putters does not read it from the disk.

The first that come are kept, not the last: a taker who is behind goes through all that lies on the disk before, and
would find what is new thrown out again. It only spares work: whoever finds nothing here reads the disk, as whoever
takes an event for the second time, and a new channel on the same directory. The ledger guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..store.format import PutPayload

#: What is kept at most, bytes.
MOST = 4 << 20
#: What an event takes besides its bytes: its objects, and the place in the dictionary. Measured on CPython 3.11.
EVENT_OVERHEAD = 100


class Recent:
    """Payloads of events that are in the queue and were not taken yet, by sequence number."""

    def __init__(self) -> None:
        self._payloads: dict[int, PutPayload] = {}
        self._size = 0

    def add(self, first: int, payloads: Sequence[PutPayload]) -> None:
        """Keep a transaction's payloads, if there is room.

        :param first: sequence number of the first.
        """
        size = sum(map(len, payloads)) + EVENT_OVERHEAD * len(payloads)
        if self._size + size <= MOST:
            self._size += size
            self._payloads.update(enumerate(payloads, first))

    def pop(self, sequences: Iterable[int]) -> list[PutPayload]:
        """The payloads of events that are taken, of those that are here; kept no longer."""
        payloads = [payload for sequence in sequences if (payload := self._payloads.pop(sequence, None)) is not None]
        self._size -= sum(map(len, payloads)) + EVENT_OVERHEAD * len(payloads)
        return payloads

    @property
    def size(self) -> int:
        """The memory that is kept, bytes."""
        return self._size
