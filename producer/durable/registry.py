"""Registry: finds the futures of records in the channel again, when the feeder takes the records.

Memory stays bounded, however many records are on disk: a future without references, callbacks or waiters is not kept. A
future with references only is held weakly. A future with a callback, or that ``concurrent.futures`` or ``asyncio``
watches, is kept until its record is completed. A kept future takes about 400 bytes (measured on CPython 3.11).
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
    """The holder of a future while its record is in the channel; a batch takes its place later.

    :ivar number: the number of the record at this producer.
    :ivar committed: True if the put is committed; before that, the record belongs to its sender.
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
        """Wait for a result, or until a batch takes the record over."""
        event = self._awaited()
        if event is not None:
            event.wait(timeout)

    def _awaited(self) -> Latch | None:
        """Return the latch that is set at the end; None if it has ended."""
        with self._registry.lock:
            if self._event is None and not self._over:
                self._event = Latch()
            return None if self._over else self._event

    def wake(self) -> None:
        """Wake waiting threads: there is a result, or another holder."""
        with self._registry.lock:
            event = self.end()
        if event is not None:
            event.set()

    def end(self) -> Latch | None:
        """End the wait, with the registry's lock held; return the latch that the caller sets without the lock."""
        self._over = True
        return self._event

    def follow(self, _position: int) -> None:
        """Return None: a batch that takes the record over replaces this holder."""
        return

    def keep_future(self, _position: int, future: SendFuture) -> None:
        if self.result is None:  # after a fork, a thread of the parent may hold the lock
            self._registry.keep_future(self.number, future)

    def settle(self, result: Result) -> None:
        """Set the result of a record that is in no batch."""
        self.result = result
        self.wake()


#: Taken from the class: Python 3.11 looks each up by a call.
_CACHE, _DISK = Stored.CACHE, Stored.DISK


class StoredFuture(SendFuture):
    """The future of a record that went into a channel."""

    __slots__ = ("_callback", "_channel", "_stored_as")

    def __init__(self, holder: Waiting, callback: Callback | None, channel: Channel) -> None:
        self._holder, self._position = holder, 0  # as the base class does, without the call
        self._callback = callback
        self._channel = channel
        #: True once the record is known to be on the disk, False if it never will be; else the sequence number to be
        #: synced.
        self._stored_as: bool | int | None = None

    @property
    def number(self) -> int:
        """The number of the record; valid until a batch takes it over."""
        return self._holder.number if isinstance(self._holder, Waiting) else -1

    @property
    def stored(self) -> bool:
        stored_as = self._stored_as
        if isinstance(stored_as, bool) or stored_as is None:
            return bool(stored_as)
        if self._channel.synced_sequence >= stored_as:
            self._stored_as = True
        return self._stored_as is True

    def committed(self, stored: Stored, sequence: int | None) -> None:
        """Note that the put is committed.

        :param sequence: the sequence number of the transaction's last event.
        """
        self._stored_as = stored is _DISK if stored is not _CACHE else sequence
        holder = self._holder
        if isinstance(holder, Waiting):
            holder.committed = True


class _Held(weakref.ref[StoredFuture]):
    """A weak reference to a future.

    :ivar number: the number of its record.
    """

    __slots__ = ("number",)

    number: int


def staying(attempt: Attempt) -> Result:
    """Return the result of a record that stays in the channel, and was in no batch."""
    return Result(successful=False, attempts=(attempt,), attempt_count=1)


class Registry:
    """Finds the future of a record by the record's number, as long as the result is needed.

    :param handler: notifies the holders of completed futures.
    """

    def __init__(self, channel: Channel, handler: BatchHandler) -> None:
        self._channel = channel
        self._handler = handler
        #: Guards everything below, and the latches of waiting threads.
        self.lock = OwnedLock()
        # Entries disappear without the lock, when futures are collected.
        self._held: dict[int, _Held] = {}
        self._gone = partial(_forget_held, self._held)
        self._pinned: dict[int, StoredFuture] = {}
        self._claimed: StoredFuture | None = None
        self._next = 0
        self._closed = False
        self._leaving = OwnedLock()  # held by leave_all

    def __len__(self) -> int:
        """The number of futures that are known at this moment."""
        return len(self._held) + len(self._pinned)

    def open(self, count: int, callback: Callback | None) -> list[StoredFuture]:
        """Return the futures of records that are about to be put; their numbers are consecutive."""
        with self.lock:
            first = self._next
            self._next += count
            futures = [StoredFuture(Waiting(self, first + i), callback, self._channel) for i in range(count)]
            for number, future in enumerate(futures, first):
                if callback is None:
                    self._held[number] = held = _Held(future, self._gone)
                    held.number = number
                else:
                    self._pinned[number] = future
        return futures

    def withdraw(self, futures: Sequence[StoredFuture]) -> None:
        """Drop the futures of records that were not put."""
        with self.lock:
            for future in futures:
                self._forget(future)

    def claim(self, number: int) -> StoredFuture | None:
        """Remove and return the future of a record that a batch is about to take over; None if it is not needed.

        Must be followed by :meth:`adopted` or :meth:`restore`; the feeder claims one at a time.
        """
        with self.lock:
            if self._closed:
                return None
            held = self._held.pop(number, None)
            self._claimed = self._pinned.pop(number, None) if held is None else held()
            return self._claimed

    def adopted(self, waiting: Waiting | None = None) -> None:
        """Note that a batch has taken the record over, or that none does.

        :param waiting: the former holder; threads that wait there are woken.
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
        """Put a claimed future back: no batch took the record over."""
        holder = future._holder
        with self.lock:
            self._claimed = None
            if isinstance(holder, Waiting):
                self._pinned[holder.number] = future

    def keep_future(self, number: int, future: SendFuture) -> None:
        """Keep a future until its callbacks and waiters are notified."""
        with self.lock:
            if number in self._held and isinstance(future, StoredFuture):
                del self._held[number]
                self._pinned[number] = future

    def committed(self, futures: Sequence[StoredFuture], stored: Stored, sequence: int | None) -> list[StoredFuture]:
        """Note that the puts are committed; return the futures that no batch will claim, since :meth:`leave_all` came
        first.
        """
        with self.lock:
            for future in futures:
                future.committed(stored, sequence)
            late = list(filter(_is_committed, futures)) if self._closed else []
            for future in late:
                self._forget(future)
        return late

    def leave(self, futures: Sequence[StoredFuture], result: Result) -> None:
        """Complete futures whose records stay in the channel, undelivered by this producer."""
        for future in futures:
            if isinstance(future._holder, Waiting):
                future._holder.settle(result)
        self._handler.put_futures(futures, result)

    def _forget(self, future: StoredFuture) -> None:
        holder = future._holder
        if isinstance(holder, Waiting):
            self._pinned.pop(holder.number, None)
            self._held.pop(holder.number, None)

    def leave_all(self, result: Callable[[], Result]) -> None:
        """Complete every remaining future with a committed put; no future can be claimed afterwards.

        If a signal handler's exception ended the call, the next call completes the rest.
        """
        with self._leaving:
            left = self._left()
            self.leave(left, result())
            self.withdraw(left)

    def _left(self) -> list[StoredFuture]:
        with self.lock:
            self._closed = True
            return list(filter(_is_committed, (*self._held_futures(), *self._pinned.values())))

    def left_in_child(self) -> list[StoredFuture]:
        """Return every future after a fork; takes no lock, which a thread of the parent may have held."""
        claimed = () if self._claimed is None else (self._claimed,)
        return [*self._held_futures(), *self._pinned.values(), *claimed]

    def _held_futures(self) -> list[StoredFuture]:
        return [future for held in self._held.copy().values() if (future := held()) is not None]


def _is_committed(future: StoredFuture) -> bool:
    """True if the record of a future is in the channel, and in no batch."""
    return isinstance(future._holder, Waiting) and future._holder.committed


def _forget_held(known: dict[int, _Held], gone: weakref.ref[StoredFuture]) -> None:
    if isinstance(gone, _Held):
        known.pop(gone.number, None)
