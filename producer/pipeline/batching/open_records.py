"""OpenRecords: the end of one open batch, where its records are put one behind the other.

It owns what is open: the records, their size, their callbacks, and the memory that was granted for them and not spent.
A log that is sent by a handle needs nothing else: no look-up of its stream, and no lock but the batch's own. Memory is
granted in advance, so that most logs find it there; what is left of it goes back at the seal, or before that, when it
is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import BuiltinMethodType, MappingProxyType, MethodType
from typing import Any, NamedTuple, Protocol

from ...model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES
from ...model.futures import ResultHolder, SendFuture
from ...model.interfaces import Record
from ...model.owned_lock import OwnedLock
from ...model.records import LogItem
from ...model.results import Callback
from ...wire.log_group import encode_log
from ...wire.text import Fallback

#: Memory accounted for each ``send`` besides its bytes: the objects that carry it. Measured on CPython 3.11.
RECORD_OVERHEAD = 320

#: What an open batch may have of the budget beyond what its records owe, bytes. It begins with a few logs, less than a
#: batch itself is charged, with the first log of a handle, and doubles with each grant, so that of many streams each
#: has little.
FIRST_QUANTUM = 2 * 1024
MAX_QUANTUM = 64 * 1024

#: Where every send is of one log; shared, since most batches are like that.
ONE_LOG_EACH: Mapping[int, int] = MappingProxyType({})


def same_call(one: Callback | None, other: Callback) -> bool:
    """Whether both are the same method of the same object. Python makes a new one each time it is named, which the
    garbage collector would look at for as long as its log waits: of such as come one after the other one is kept.
    """
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return isinstance(one, BuiltinMethodType) and isinstance(other, BuiltinMethodType) and one == other


class Grants(Protocol):
    """Where memory comes from."""

    def grant(self, open_records: OpenRecords, charge: int) -> bool:
        """Raise ``open_records.granted`` so that ``charge`` bytes more can be spent, or refuse."""


class Sealed(NamedTuple):
    """What a batch holds that takes no more records.

    :ivar records: the bytes, in order; each is of a send or of several.
    :ivar size: their length and that of the tail, bytes.
    :ivar logs: how many logs they are.
    :ivar sends: how many sends; the first has position 0.
    :ivar spent: the memory that they owe, bytes.
    :ivar callbacks: by position; shorter than the sends where the last ones have none.
    :ivar logs_of_send: by position, for the sends that are not of one log.
    """

    records: Sequence[Record]
    size: int
    logs: int
    sends: int
    spent: int
    callbacks: Sequence[Callback | None]
    logs_of_send: Mapping[int, int]


class _Send(NamedTuple):
    """One send of an open batch; ``charge`` is the memory that it owes, bytes."""

    record: Record
    logs: int
    callback: Callback | None
    charge: int


class OpenRecords:
    """See the module.

    Logs are added by any number of threads. The rest is called by those who open, fill and seal batches, and hold the
    budget's lock; its own lock is taken last, for a moment.

    :param holder: the batch, which its futures belong to.
    :param budget: where more memory is asked for, with no lock held.
    :param time: the time of day, seconds since the epoch; asked with no lock held.
    :param thresholds: bytes, and logs: the log that reaches either is refused by :meth:`add`.
    :param tail_size: bytes of the body that are not records.
    :param fallback: what is done with values that cannot be sent as they are.
    :param apart: each send's record stays apart, for who needs them one by one; else small ones may be put together.
    :ivar granted: the memory that the batch has of the budget, bytes; guarded by the budget's lock, which alone
        changes it. Never less than what is spent.
    :ivar quantum: what is granted at once where there is enough, bytes; the budget's.
    """

    __slots__ = (
        "_budget",
        "_fallback",
        "_holder",
        "_lock",
        "_sends",
        "_tail_size",
        "_threshold_bytes",
        "_threshold_count",
        "_time",
        "granted",
        "logs",
        "quantum",
        "sends",
        "size",
        "spent",
    )

    def __init__(
        self,
        holder: ResultHolder,
        budget: Grants,
        time: Callable[[], float],
        thresholds: tuple[int, int],
        tail_size: int,
        fallback: Fallback | None = None,
        apart: bool = False,  # noqa: ARG002  # here they always stay apart
    ) -> None:
        self._budget, self._time, self._fallback = budget, time, fallback
        self._threshold_bytes, self._threshold_count = thresholds
        self._tail_size = tail_size
        self.granted = self.quantum = 0
        self._lock = OwnedLock()  # guards everything below
        self._holder: ResultHolder | None = holder  # None: closed
        self._sends: list[_Send] = []
        #: Bytes of the body, logs, sends, bytes of memory that they owe.
        self.size, self.logs, self.sends, self.spent = tail_size, 0, 0, 0

    def add(self, log: Any, callback: Callback | None) -> SendFuture | None:
        """Add one log, behind all that was added before, with the time of day.

        :returns: the future of its result. None if nothing was done, and the general way has to be taken: what is no
            ``dict``, nor a ``LogItem`` of one, a callback that is none, a log that fills the batch, no memory, or
            others who wait for it, a batch that takes no more.
        :raises InvalidArgumentError: a name that is not text, a value that cannot become text; nothing was done.
        """
        holder = self._holder
        contents = log.contents if type(log) is LogItem else log
        if holder is None or type(contents) is not dict or not (callback is None or callable(callback)):
            return None
        now = self._time()
        second = int(now)
        record = encode_log(log, second, int((now - second) * 1e9), self._fallback)
        charge = len(record) + RECORD_OVERHEAD
        while True:
            with self._lock:
                if (
                    self._holder is not holder
                    or self.size + len(record) >= self._threshold_bytes
                    or self.logs + 1 >= self._threshold_count
                ):
                    return None
                if self.spent + charge <= self.granted:
                    return self._put(_Send(record, 1, callback, charge), holder)
            if not self._budget.grant(self, charge):
                return None

    def append(self, record: Record, logs: int, callback: Callback | None, charge: int) -> SendFuture | None:
        """Add one send of encoded logs, which are kept as they are; they may fill the batch.

        :param record: the logs, joined.
        :param logs: how many they are.
        :param charge: the memory that it owes; ``granted`` grows by it, and whoever calls sees to it that the budget
            knows.
        :returns: the future; None, with nothing done, if the batch is closed or has no room.
        """
        with self._lock:
            holder = self._holder
            if holder is None or not self.has_room(len(record), logs):
                return None
            self.granted += charge
            return self._put(_Send(record, logs, callback, charge), holder)

    def has_room(self, size: int, logs: int) -> bool:
        """Whether a send of ``size`` bytes and ``logs`` logs stays within the limits of a batch; the first one does."""
        fits = not self.sends or (self.size + size <= MAX_BATCH_SIZE_IN_BYTES and self.logs + logs <= MAX_BATCH_COUNT)
        return fits and self._holder is not None

    def _put(self, send: _Send, holder: ResultHolder) -> SendFuture:
        """Add a send. The caller holds the lock."""
        before = self._sends[-1].callback if self._sends else None
        if send.callback is not None and same_call(before, send.callback):
            send = send._replace(callback=before)
        future = SendFuture(holder, len(self._sends))
        self._sends.append(send)
        self._count(len(send.record), send.logs, send.charge)
        return future

    def _count(self, size: int, logs: int, charge: int) -> None:
        self.size += size
        self.logs += logs
        self.sends += 1
        self.spent += charge

    def seal(self) -> Sealed:
        """Take no more records. What was granted and not spent is the caller's to give back: ``granted`` is what was
        spent from now on. May be called again, until :meth:`forget`.
        """
        with self._lock:
            self._holder = None
            return self._sealed()

    def _sealed(self) -> Sealed:
        """Return what was added, counted anew: a signal handler that raises may have prevented the count of a send."""
        self.size, self.logs, self.sends, self.spent = self._tail_size, 0, 0, 0
        for send in self._sends:
            self._count(len(send.record), send.logs, send.charge)
        self.granted = self.spent
        callbacks = [send.callback for send in self._sends]
        while callbacks and callbacks[-1] is None:
            callbacks.pop()
        logs_of_send = {place: send.logs for place, send in enumerate(self._sends) if send.logs != 1} or ONE_LOG_EACH
        return Sealed(self._records, self.size, self.logs, self.sends, self.spent, callbacks or (), logs_of_send)

    def reclaim(self) -> None:
        """Let ``granted`` be what was spent; the caller gives back the difference."""
        with self._lock:
            self.granted = self.spent

    def forget(self) -> None:
        """Hold nothing any more but the counts. Takes no lock: in a forked child nobody may be left to give it back."""
        self._holder = None
        self._sends = []

    @property
    def closed(self) -> bool:
        """Whether it takes no more records."""
        return self._holder is None

    @property
    def _records(self) -> list[Record]:
        return [send.record for send in self._sends]
