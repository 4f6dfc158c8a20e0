"""Recent: payloads of recent puts, so that a taker that keeps up reads nothing from the disk.

The oldest are kept, not the newest: a taker that lags behind reads from the disk first, and newer payloads would be
evicted before it reaches them. It is only a cache: events that are not in it are read from the disk. The ledger's lock
guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..store.format import PutPayload

#: Largest size of the cache, bytes.
MOST = 4 << 20
#: Bytes that an event takes besides its payload: objects and dictionary slot, measured on CPython 3.11.
EVENT_OVERHEAD = 100


class Recent:
    """Payloads of queued events that were never taken, by sequence number."""

    def __init__(self) -> None:
        self._payloads: dict[int, PutPayload] = {}
        self._size = 0

    def add(self, first: int, payloads: Sequence[PutPayload]) -> None:
        """Keep a transaction's payloads, if they fit.

        :param first: sequence number of the first.
        """
        size = sum(map(len, payloads)) + EVENT_OVERHEAD * len(payloads)
        if self._size + size <= MOST:
            self._size += size
            self._payloads.update(enumerate(payloads, first))

    def pop(self, sequences: Iterable[int]) -> list[PutPayload]:
        """Remove and return the cached payloads of taken events."""
        payloads = [payload for sequence in sequences if (payload := self._payloads.pop(sequence, None)) is not None]
        self._size -= sum(map(len, payloads)) + EVENT_OVERHEAD * len(payloads)
        return payloads

    @property
    def size(self) -> int:
        """Return the memory in use, bytes."""
        return self._size
