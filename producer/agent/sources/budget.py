"""Budget: the memory that a source holds for all of its peers together, at most.

Bytes that come are counted as they come, not as a peer announces them. Those of one address are half of all at most, or
one message of the largest size: whoever sends much, and slowly, leaves the others room.
"""

from __future__ import annotations

import threading
from collections import Counter


class Budget:
    """See the module.

    :param size: bytes.
    :param largest: bytes of the largest message.
    :ivar left: bytes that nobody holds.
    """

    def __init__(self, size: int, largest: int) -> None:
        self.size = size
        self._most_of_peer = max(size // 2, largest)
        self._lock = threading.Lock()  # guards what follows
        self.left = size
        self._of_peers = Counter[str]()

    def take(self, peer: str, size: int, *, within_share: bool) -> bool:
        """Whether there were so many bytes, which then belong to a peer."""
        with self._lock:
            of_peer = self._of_peers[peer] + size
            fits = size <= self.left and (of_peer <= self._most_of_peer or not within_share)
            if fits and size:  # an address that holds nothing is not kept
                self.left -= size
                self._of_peers[peer] = of_peer
        return fits

    def give(self, peer: str, size: int) -> None:
        """Give them back."""
        with self._lock:
            self.left += size
            self._of_peers[peer] -= size
            if not self._of_peers[peer]:
                del self._of_peers[peer]


class Holding:
    """What a peer's message holds of a budget; for one thread.

    :ivar size: bytes.
    """

    def __init__(self, budget: Budget, peer: str) -> None:
        self._budget, self._peer = budget, peer
        self.size = 0

    def take(self, size: int, *, within_share: bool = True) -> bool:
        """Whether there were so many bytes more.

        :param within_share: of those that came; what is made of them needs more for a moment, and has no share.
        """
        fits = self._budget.take(self._peer, size, within_share=within_share)
        if fits:
            self.size += size
        return fits

    def keep(self, size: int) -> None:
        """Give back all but so many bytes."""
        if size < self.size:
            self._budget.give(self._peer, self.size - size)
            self.size = size
