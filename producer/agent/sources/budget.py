"""Budget: the memory that a source holds for all of its peers together, at most.

Bytes that come are counted as they come, not as a peer announces them. Those of one address are half of all at most, or
one message of the largest size: whoever sends much, and slowly, leaves the others room.

A message that waits for memory keeps what it has. So that messages that wait for each other do not wait for ever, the
message that began last gives way to an older one: its connection is closed, and its sender sends it again. The oldest
message can always be completed.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Budget:
    """See the module.

    :param size: bytes.
    :param largest: bytes of the largest message.
    :ivar left: bytes that nobody holds.
    """

    def __init__(self, size: int, largest: int) -> None:
        self.size = size
        self._most_of_peer = max(size // 2, largest)
        self._released = threading.Condition()  # guards what follows
        self.left = size
        self._of_peers = Counter[str]()
        self._coming: dict[Holding, tuple[float, Callable[[], object]]] = {}

    def take(self, peer: str, size: int, *, within_share: bool) -> bool:
        """Whether there were so many bytes, which then belong to a peer."""
        with self._released:
            fits = self._fits(peer, size, within_share=within_share)
            if fits and size:  # an address that holds nothing is not kept
                self.left -= size
                self._of_peers[peer] += size
        return fits

    def _fits(self, peer: str, size: int, *, within_share: bool) -> bool:
        return size <= self.left and (self._of_peers[peer] + size <= self._most_of_peer or not within_share)

    def wait(self, holding: Holding, size: int, timeout: float) -> None:
        """Have the youngest message give way to an older one that needs so many bytes, and wait until any are given
        back, at most for so many seconds.
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
        """Messages whose bytes would help another one."""
        of_all = size > self.left
        return [each for each in self._coming if each.size and (of_all or each.peer == holding.peer)]

    def _is_older(self, holding: Holding, other: Holding) -> bool:
        return holding in self._coming and self._coming[holding][0] < self._coming[other][0]

    def begin(self, holding: Holding, since: float, withdraw: Callable[[], object]) -> None:
        """A message is coming since then, in monotonic seconds; ``withdraw`` closes its connection."""
        with self._released:
            self._coming[holding] = since, withdraw

    def end(self, holding: Holding) -> None:
        """It does not give way any more: it has come, or never will."""
        with self._released:
            del self._coming[holding]

    def give(self, peer: str, size: int) -> None:
        """Give them back."""
        with self._released:
            self.left += size
            self._of_peers[peer] -= size
            if not self._of_peers[peer]:
                del self._of_peers[peer]
            self._released.notify_all()


class Holding:
    """What a peer's message holds of a budget; for one thread.

    :ivar size: bytes.
    :ivar withdrawn: True if the message had to give way, and its connection ends.
    """

    def __init__(self, budget: Budget, peer: str) -> None:
        self._budget, self.peer = budget, peer
        self.size, self.withdrawn = 0, False

    def take(self, size: int, *, within_share: bool = True) -> bool:
        """Whether there were so many bytes more.

        :param within_share: of those that came; what is made of them needs more for a moment, and has no share.
        """
        fits = self._budget.take(self.peer, size, within_share=within_share)
        if fits:
            self.size += size
        return fits

    def keep(self, size: int) -> None:
        """Give back all but so many bytes."""
        if size < self.size:
            self._budget.give(self.peer, self.size - size)
            self.size = size

    @contextmanager
    def coming(self, since: float, withdraw: Callable[[], object]) -> Iterator[None]:
        """While its message comes it may have to give way to an older one; see :meth:`Budget.begin`."""
        self._budget.begin(self, since, withdraw)
        try:
            yield
        finally:
            self._budget.end(self)

    def wait(self, size: int, timeout: float) -> None:
        """See :meth:`Budget.wait`."""
        self._budget.wait(self, size, timeout)
