"""Budget: a limit of the memory that a source holds for all of its peers together.

Bytes count when they arrive, not when a peer announces them. One address may hold at most half of the budget, or one
message of the largest size. So a peer that sends much, and slowly, leaves room for others.

A message that waits for memory keeps its bytes. To avoid a deadlock, the youngest message is withdrawn in favour of an
older one: its connection is closed, and its sender sends it again. So the oldest message can always complete.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Budget:
    """Memory limit of one source, shared by the threads of its connections.

    :param size: bytes.
    :param largest: bytes of the largest message.
    :ivar left: free bytes.
    """

    def __init__(self, size: int, largest: int) -> None:
        self.size = size
        self._most_of_peer = max(size // 2, largest)
        self._released = threading.Condition()  # guards the fields below
        self.left = size
        self._of_peers = Counter[str]()
        self._coming: dict[Holding, tuple[float, Callable[[], object]]] = {}

    def take(self, peer: str, size: int, *, within_share: bool) -> bool:
        """Reserve bytes for a peer; return False if they are not free."""
        with self._released:
            fits = self._fits(peer, size, within_share=within_share)
            if fits and size:  # no entry for an address that holds nothing
                self.left -= size
                self._of_peers[peer] += size
        return fits

    def _fits(self, peer: str, size: int, *, within_share: bool) -> bool:
        return size <= self.left and (self._of_peers[peer] + size <= self._most_of_peer or not within_share)

    def wait(self, holding: Holding, size: int, timeout: float) -> None:
        """Wait until bytes are released, at most ``timeout`` seconds.

        First withdraw the youngest message if an older one needs its bytes.
        """
        with self._released:
            if self._fits(holding.peer, size, within_share=True):
                return
            youngest = max(self._rivals(holding, size), key=lambda each: self._coming[each][0], default=holding)
            if youngest is not holding and not youngest.withdrawn and self._is_older(holding, youngest):
                youngest.withdrawn = True
                self._coming[youngest][1]()
            if not holding.withdrawn:
                self._released.wait(timeout)

    def _rivals(self, holding: Holding, size: int) -> list[Holding]:
        """Return the messages whose bytes would help another one."""
        of_all = size > self.left
        return [each for each in self._coming if each.size and (of_all or each.peer == holding.peer)]

    def _is_older(self, holding: Holding, other: Holding) -> bool:
        return holding in self._coming and self._coming[holding][0] < self._coming[other][0]

    def begin(self, holding: Holding, since: float, withdraw: Callable[[], object]) -> None:
        """Register a message that is arriving.

        :param since: the time of its beginning, monotonic seconds.
        :param withdraw: closes its connection.
        """
        with self._released:
            self._coming[holding] = since, withdraw

    def end(self, holding: Holding) -> None:
        """Remove a message that has arrived or failed; it cannot be withdrawn any more."""
        with self._released:
            del self._coming[holding]

    def give(self, peer: str, size: int) -> None:
        """Release bytes of a peer."""
        with self._released:
            self.left += size
            self._of_peers[peer] -= size
            if not self._of_peers[peer]:
                del self._of_peers[peer]
            self._released.notify_all()


class Holding:
    """The bytes reserved for one message of a peer; used by one thread.

    :ivar size: bytes.
    :ivar withdrawn: True if the message was withdrawn; its connection is closed.
    """

    def __init__(self, budget: Budget, peer: str) -> None:
        self._budget, self.peer = budget, peer
        self.size, self.withdrawn = 0, False

    def take(self, size: int, *, within_share: bool = True) -> bool:
        """Reserve more bytes; return False if they are not free.

        :param within_share: True for bytes that arrived; False for objects made of them, which need memory for a
            moment and do not count against the peer's share.
        """
        fits = self._budget.take(self.peer, size, within_share=within_share)
        if fits:
            self.size += size
        return fits

    def keep(self, size: int) -> None:
        """Release all but ``size`` bytes."""
        if size < self.size:
            self._budget.give(self.peer, self.size - size)
            self.size = size

    @contextmanager
    def coming(self, since: float, withdraw: Callable[[], object]) -> Iterator[None]:
        """Register the message as arriving: it may be withdrawn in favour of an older one."""
        self._budget.begin(self, since, withdraw)
        try:
            yield
        finally:
            self._budget.end(self)

    def wait(self, size: int, timeout: float) -> None:
        """Wait until bytes are released, at most ``timeout`` seconds."""
        self._budget.wait(self, size, timeout)
