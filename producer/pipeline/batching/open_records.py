"""OpenRecords: the end of one open batch, where its records are put one behind the other.

It owns what is open: the records, their size, their callbacks. A log that is sent by a handle needs nothing else but
the memory: no look-up of its stream, and no lock but the batch's own.

What is being added counts once a single assignment has made it count; what a signal handler that raises before it
leaves of a log is removed by the next step.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import BuiltinMethodType, MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

from ...model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES
from ...model.futures import ResultHolder, SendFuture
from ...model.interfaces import Record
from ...model.owned_lock import reentered
from ...model.records import LogItem
from ...model.results import Callback
from ...runtime.clock import Clock
from ...wire.log_group import encode_log
from ...wire.text import Fallback, moment_of

if TYPE_CHECKING:
    from .memory import Bytes

#: Memory accounted for each ``send`` besides its bytes: the objects that carry it. Measured on CPython 3.11.
RECORD_OVERHEAD = 320

#: Where every send is of one log; shared, since most batches are like that.
ONE_LOG_EACH: Mapping[int, int] = MappingProxyType({})

_new = object.__new__


def same_call(one: Callback | None, other: Callback) -> bool:
    """Whether both are the same method of the same object. Python makes a new one each time it is named, which the
    garbage collector would look at for as long as its log waits: of such as come one after the other one is kept.
    """
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return isinstance(one, BuiltinMethodType) and isinstance(other, BuiltinMethodType) and one == other


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


class OpenRecords:
    """See the module.

    Logs are added by any number of threads. The rest is called by those who open, fill and seal batches, and hold the
    budget's lock; its own lock is taken last, for a moment.

    :param holder: the batch, which its futures belong to.
    :param memory: where each log that is added takes its memory.
    :param clock: gives the time of day; asked with no lock held.
    :param thresholds: bytes, and logs: the log that reaches either is refused by :meth:`add`.
    :param tail_size: bytes of the body that are not records.
    :param fallback: what is done with values that cannot be sent as they are.
    :param apart: each send's record stays apart, for who needs them one by one; else small ones may be put together.
    """

    __slots__ = (
        "_callbacks",
        "_clock",
        "_counts",
        "_fallback",
        "_holder",
        "_lock",
        "_logs_of_send",
        "_memory",
        "_records",
        "_threshold_bytes",
        "_threshold_count",
    )

    def __init__(
        self,
        holder: ResultHolder,
        memory: Bytes,
        clock: Clock,
        thresholds: tuple[int, int],
        tail_size: int,
        fallback: Fallback | None = None,
        apart: bool = False,  # noqa: ARG002  # here they always stay apart
    ) -> None:
        self._memory, self._clock, self._fallback = memory, clock, fallback
        self._threshold_bytes, self._threshold_count = thresholds
        self._lock = threading.RLock()  # guards everything below; never taken twice
        self._holder: ResultHolder | None = holder  # None: closed
        #: Size, logs, sends, memory spent: of what counts.
        self._counts = tail_size, 0, 0, 0
        self._records: list[Record] = []  # one for each send
        # None where most batches have none: of many streams each has a batch, and each object costs the collector.
        self._callbacks: list[Callback | None] | None = None
        self._logs_of_send: dict[int, int] | None = None

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
        now, nanos = moment_of(self._clock.time())
        record = encode_log(log, now, nanos, self._fallback)
        length = len(record)
        charge = length + RECORD_OVERHEAD
        if self._lock._is_owned():  # type: ignore[attr-defined]  # asked here, since the call of an OwnedLock costs more
            raise reentered()
        with self._lock:
            size, logs, sends, spent = self._counts
            size += length
            logs += 1
            if self._holder is not holder or size >= self._threshold_bytes or logs >= self._threshold_count:
                return None
            if not self._memory.take(charge):
                return None
            records = self._records
            if len(records) != sends:
                self._clean(sends)
            records.append(record)
            if callback is not None:
                self._add_callback(sends, callback)
            future = _new(SendFuture)  # without __init__, which would cost as much again
            future._holder, future._position = holder, sends
            self._counts = size, logs, sends + 1, spent + charge
            return future

    def append(self, record: Record, logs: int, callback: Callback | None, charge: int) -> SendFuture | None:
        """Add one send of encoded logs, which are kept as they are; they may fill the batch.

        :param record: the logs, joined.
        :param logs: how many they are.
        :param charge: the memory that it owes, which the caller has taken.
        :returns: the future; None, with nothing done, if the batch is closed or has no room.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]  # likewise
            raise reentered()
        with self._lock:
            holder = self._holder
            if holder is None or not self.has_room(len(record), logs):
                return None
            size, count, sends, spent = self._counts
            self._clean(sends)
            self._records.append(record)
            if callback is not None:
                self._add_callback(sends, callback)
            future = SendFuture(holder, sends)
            if logs != 1:
                self._note_logs(sends, logs)
            self._counts = size + len(record), count + logs, sends + 1, spent + charge
            return future

    def has_room(self, size: int, logs: int) -> bool:
        """Whether a send of ``size`` bytes and ``logs`` logs stays within the limits of a batch; the first one does."""
        filled, count, sends, _ = self._counts
        fits = not sends or (filled + size <= MAX_BATCH_SIZE_IN_BYTES and count + logs <= MAX_BATCH_COUNT)
        return fits and self._holder is not None

    def _add_callback(self, position: int, callback: Callback) -> None:
        callbacks = self._callbacks
        if callbacks is None:
            callbacks = self._callbacks = []
        callbacks += [None] * (position - len(callbacks))
        callbacks.append(callbacks[-1] if callbacks and same_call(callbacks[-1], callback) else callback)

    def _note_logs(self, position: int, logs: int) -> None:
        if self._logs_of_send is None:
            self._logs_of_send = {}
        self._logs_of_send[position] = logs

    def _clean(self, sends: int) -> None:
        """Remove what a signal handler that raised has left of a log."""
        del self._records[sends:]
        if self._callbacks is not None:
            del self._callbacks[sends:]
        if self._logs_of_send is not None:
            self._logs_of_send.pop(sends, None)

    def seal(self) -> Sealed:
        """Take no more records. May be called again, until :meth:`forget`."""
        with self._lock:
            self._holder = None
            size, logs, sends, spent = self._counts
            self._clean(sends)
            callbacks, logs_of_send = self._callbacks or (), self._logs_of_send or ONE_LOG_EACH
            return Sealed(self._records, size, logs, sends, spent, callbacks, logs_of_send)

    def forget(self) -> None:
        """Hold nothing any more but the counts. Takes no lock: in a forked child nobody may be left to give it back."""
        self._holder = None
        self._records, self._callbacks, self._logs_of_send = [], None, None

    @property
    def closed(self) -> bool:
        """Whether it takes no more records."""
        return self._holder is None

    @property
    def size(self) -> int:
        """Of the body as it is now, bytes."""
        return self._counts[0]

    @property
    def logs(self) -> int:
        """How many logs were added."""
        return self._counts[1]

    @property
    def sends(self) -> int:
        """How many sends were added."""
        return self._counts[2]

    @property
    def spent(self) -> int:
        """The memory that they owe, bytes."""
        return self._counts[3]
