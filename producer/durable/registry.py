"""Registry: the futures of records that are in the channel, found again when the feeder takes them.

However many records are on disk, memory stays bounded: a future that nobody holds and nobody is to be told about is not
kept. One that somebody merely holds is known weakly; one with a callback, or that a waiter of ``concurrent.futures`` or
``asyncio`` watches, is kept until its record is settled. A future costs about 400 bytes while it is kept (measured on
CPython 3.11).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial

from ..model.futures import SendFuture
from ..model.interfaces import Channel, Stored
from ..model.owned_lock import OwnedLock
from ..model.results import Attempt, Callback, Result
from ..pipeline.settling.callbacks import BatchHandler
from ..runtime.clock import Latch


class Waiting:
    """What stands where the batch of a future will stand, as long as the record is in the channel.

    :ivar number: of the record, at this producer.
    :ivar committed: whether the put is committed; before that, the record is its sender's.
    """

    __slots__ = ("_event", "_over", "_registry", "committed", "number", "result")

    def __init__(self, registry: Registry, number: int) -> None:
        self._registry = registry
        self._event: Latch | None = None  # guarded by the registry's lock, as is the next
        self._over = False
        self.number = number
        self.committed = False
        self.result: Result | None = None

    def wait(self, timeout: float | None) -> None:
        """See :class:`~producer.model.futures.ResultHolder`; ends also when a batch takes the record over."""
        event = self._awaited()
        if event is not None:
            event.wait(timeout)

    def _awaited(self) -> Latch | None:
        """What is set when it ends; None if it has."""
        with self._registry.lock:
            if self._event is None and not self._over:
                self._event = Latch()
            return None if self._over else self._event

    def wake(self) -> None:
        """Let those go on who wait: there is a result, or another holder."""
        with self._registry.lock:
            event = self.end()
        if event is not None:
            event.set()

    def end(self) -> Latch | None:
        """As :meth:`wake`, with the registry's lock held: what the caller is to set without it."""
        self._over = True
        return self._event

    def follow(self, _position: int) -> None:
        """Do nothing: a batch that takes the record over replaces this holder."""
        return

    def keep_future(self, _position: int, future: SendFuture) -> None:
        """See :class:`~producer.model.futures.ResultHolder`."""
        if self.result is None:  # else there may be nobody left who could give the lock back: after a fork
            self._registry.keep_future(self.number, future)

    def settle(self, result: Result) -> None:
        """There is a result, without a batch."""
        self.result = result
        self.wake()

    def settle_in_child(self, result: Result) -> None:
        """As :meth:`settle`, after a fork: nobody waits in this process."""
        self.result = result


#: Asked of their class, Python 3.11 looks each up by a call.
_CACHE, _DISK = Stored.CACHE, Stored.DISK


class StoredFuture(SendFuture):
    """The future of a record that went into a channel."""

    __slots__ = ("_callback", "_channel", "_stored_as")

    def __init__(self, holder: Waiting, callback: Callback | None, channel: Channel) -> None:
        self._holder, self._position = holder, 0  # as its base does, without the call
        self._callback = callback
        self._channel = channel
        #: True once it is known to be on the disk, False if it never will be; else the number to be synced.
        self._stored_as: bool | int | None = None

    @property
    def number(self) -> int:
        """Of the record, as long as no batch has taken it over."""
        return self._holder.number if isinstance(self._holder, Waiting) else -1

    @property
    def stored(self) -> bool:
        """See :class:`~producer.model.futures.SendFuture`."""
        stored_as = self._stored_as
        if isinstance(stored_as, bool) or stored_as is None:
            return bool(stored_as)
        if self._channel.synced_sequence >= stored_as:
            self._stored_as = True
        return self._stored_as is True

    def committed(self, stored: Stored, sequence: int | None) -> None:
        """The put is committed.

        :param sequence: of the last event of the transaction.
        """
        self._stored_as = stored is _DISK if stored is not _CACHE else sequence
        holder = self._holder
        if isinstance(holder, Waiting):
            holder.committed = True


class _Held(weakref.ref[StoredFuture]):
    """A future that somebody holds; known as long as that is so.

    :ivar number: of its record.
    """

    __slots__ = ("number",)

    number: int


def staying(attempt: Attempt) -> Result:
    """The result of a record that stays in the channel, and was in no batch."""
    return Result(successful=False, attempts=(attempt,), attempt_count=1)


class Registry:
    """Finds the future of a record by the record's number, as long as somebody wants to know its result.

    :param handler: tells the holders of settled futures their result.
    """

    def __init__(self, channel: Channel, handler: BatchHandler) -> None:
        self._channel = channel
        self._handler = handler
        #: Guards everything below, and who waits.
        self.lock = OwnedLock()
        # Without a lock entries go, wherever futures are collected.
        self._held: dict[int, _Held] = {}
        self._gone = partial(_forget_held, self._held)
        self._heeded: dict[int, StoredFuture] = {}
        self._claimed: StoredFuture | None = None
        self._next = 0
        self._closed = False
        self._leaving = OwnedLock()  # of leave_all

    def __len__(self) -> int:
        """Futures that are known at this moment."""
        return len(self._held) + len(self._heeded)

    def open(self, count: int, callback: Callback | None) -> list[StoredFuture]:
        """The futures of so many records, which are about to be put; their numbers follow each other."""
        with self.lock:
            first = self._next
            self._next += count
            futures = [StoredFuture(Waiting(self, first + i), callback, self._channel) for i in range(count)]
            for number, future in enumerate(futures, first):
                if callback is None:
                    self._held[number] = held = _Held(future, self._gone)
                    held.number = number
                else:
                    self._heeded[number] = future
        return futures

    def begun(self) -> list[StoredFuture]:
        """Those whose puts have begun, and have not ended."""
        with self.lock:
            return list(filter(self._is_begun, (*self._held_futures(), *self._heeded.values())))

    def any_begun(self, futures: Sequence[StoredFuture]) -> bool:
        """Whether the put of one of these has not ended yet."""
        with self.lock:
            return any(map(self._is_begun, futures))

    def _is_begun(self, future: StoredFuture) -> bool:
        holder = future._holder
        if not isinstance(holder, Waiting) or holder.committed:
            return False
        return holder.number in self._held or holder.number in self._heeded  # else it was withdrawn, or is claimed

    def withdraw(self, futures: Sequence[StoredFuture]) -> None:
        """These records were not put."""
        with self.lock:
            for future in futures:
                self._forget(future)

    def claim(self, number: int) -> StoredFuture | None:
        """The future of a record that a batch is about to take over, out of the registry; None if nobody asks.

        To be followed by :meth:`adopted` or :meth:`restore`; the feeder has one at a time.
        """
        with self.lock:
            if self._closed:
                return None
            held = self._held.pop(number, None)
            self._claimed = self._heeded.pop(number, None) if held is None else held()
            return self._claimed

    def adopted(self, waiting: Waiting | None = None) -> None:
        """A batch has taken the record over, or nobody does.

        :param waiting: what stood in place of the batch; who waits there goes on.
        """
        event = None
        with self.lock:
            claimed, self._claimed = self._claimed, None
            if waiting is not None:
                event = waiting.end()
        if event is not None:
            event.set()
        del claimed

    def restore(self, future: StoredFuture) -> None:
        """No batch took the record over after all."""
        holder = future._holder
        with self.lock:
            self._claimed = None
            if isinstance(holder, Waiting):
                self._heeded[holder.number] = future

    def keep_future(self, number: int, future: SendFuture) -> None:
        """Somebody is to be told of the result: keep the future."""
        with self.lock:
            if number in self._held and isinstance(future, StoredFuture):
                del self._held[number]
                self._heeded[number] = future

    def committed(self, futures: Sequence[StoredFuture], stored: Stored, sequence: int | None) -> list[StoredFuture]:
        """The puts of these are committed; returns those that no batch will claim, as :meth:`leave_all` came first."""
        with self.lock:
            for future in futures:
                future.committed(stored, sequence)
            late = list(filter(_is_committed, futures)) if self._closed else []
            for future in late:
                self._forget(future)
        return late

    def leave(self, futures: Sequence[StoredFuture], result: Result) -> None:
        """The records of these stay in the channel, and this producer does not deliver them."""
        for future in futures:
            if isinstance(future._holder, Waiting):
                future._holder.settle(result)
        self._handler.tell(futures, result)

    def _forget(self, future: StoredFuture) -> None:
        holder = future._holder
        if isinstance(holder, Waiting):
            self._heeded.pop(holder.number, None)
            self._held.pop(holder.number, None)

    def leave_all(self, result: Callable[[], Result]) -> None:
        """Leave every future that is left, but for those whose put is not committed; nothing is claimed any more.

        Those of a call that a signal handler's exception ended are left by the next call.
        """
        with self._leaving:
            left = self._left()
            self.leave(left, result())
            self.withdraw(left)

    def _left(self) -> list[StoredFuture]:
        with self.lock:
            self._closed = True
            return list(filter(_is_committed, (*self._held_futures(), *self._heeded.values())))

    def left_in_child(self) -> list[StoredFuture]:
        """Every future, after a fork; takes no lock, which a thread of the parent may have held."""
        claimed = () if self._claimed is None else (self._claimed,)
        return [*self._held_futures(), *self._heeded.values(), *claimed]

    def _held_futures(self) -> list[StoredFuture]:
        return [future for held in self._held.copy().values() if (future := held()) is not None]


def _is_committed(future: StoredFuture) -> bool:
    """Whether the record of a future is in the channel, and no batch has it."""
    return isinstance(future._holder, Waiting) and future._holder.committed


def _forget_held(known: dict[int, _Held], gone: weakref.ref[StoredFuture]) -> None:
    if isinstance(gone, _Held):
        known.pop(gone.number, None)
