"""OpenRecords: the records of one open batch.

It owns the records, their size and their callbacks. A log sent through a handle needs only this object and memory: no
look-up of its stream, and no lock but this one.

A record counts once a single assignment has updated the counts. If a signal handler raises before that, the next step
removes the remains of the record.
"""

from __future__ import annotations

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
from ...runtime.locks import RLock
from ...wire.log_group import encode_log
from ...wire.text import Fallback, moment_of

if TYPE_CHECKING:
    from .memory import Bytes

#: Memory accounted for each ``send`` besides its bytes, for the objects that carry it. Measured on CPython 3.11.
RECORD_OVERHEAD = 320

#: The counts of a batch whose sends have one log each; shared, since most batches are like that.
ONE_LOG_EACH: Mapping[int, int] = MappingProxyType({})

_new = object.__new__


def same_call(one: Callback | None, other: Callback) -> bool:
    """True if both are the same method of the same object.

    Python makes a new method object at each access. The garbage collector would scan each of them while its log waits,
    so of equal neighbours only one object is kept.
    """
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return isinstance(one, BuiltinMethodType) and isinstance(other, BuiltinMethodType) and one == other


class Sealed(NamedTuple):
    """The contents of a sealed batch.

    :ivar records: the bytes, in order; each item has one or more sends.
    :ivar size: the length of the records and of the tail, bytes.
    :ivar logs: the number of logs.
    :ivar sends: the number of sends; the first has position 0.
    :ivar spent: the memory taken for them, bytes.
    :ivar callbacks: by position; shorter than the sends if the last ones have none.
    :ivar logs_of_send: by position, for sends that do not have exactly one log.
    """

    records: Sequence[Record]
    size: int
    logs: int
    sends: int
    spent: int
    callbacks: Sequence[Callback | None]
    logs_of_send: Mapping[int, int]


class OpenRecords:
    """The records of one open batch.

    Any number of threads add logs. The other methods are called by threads that hold the budget's lock. The lock of
    this object is taken last, and only briefly.

    :param holder: the batch, to which the futures belong.
    :param memory: the budget from which each added log takes its memory.
    :param clock: the time of day; called with no lock held.
    :param thresholds: bytes, and logs: :meth:`add` refuses the log that reaches either.
    :param tail_size: bytes of the body that are not records.
    :param fallback: how values are encoded that cannot be sent as they are.
    :param apart: True to keep each send's record apart; otherwise small records may be joined.
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
        apart: bool = False,  # noqa: ARG002  # this implementation always keeps them apart
    ) -> None:
        self._memory, self._clock, self._fallback = memory, clock, fallback
        self._threshold_bytes, self._threshold_count = thresholds
        self._lock = RLock()  # guards everything below; never taken twice by one thread
        self._holder: ResultHolder | None = holder  # None: sealed
        #: Size, logs, sends and memory of the records that count.
        self._counts = tail_size, 0, 0, 0
        self._records: list[Record] = []  # one for each send
        # None in most batches: each of many streams has a batch, and each object costs the garbage collector time.
        self._callbacks: list[Callback | None] | None = None
        self._logs_of_send: dict[int, int] | None = None

    def add(self, log: Any, callback: Callback | None) -> SendFuture | None:
        """Append one log with the time of day.

        :returns: the future of its result. None if nothing was done: the log is not a ``dict`` or a ``LogItem`` of one,
            the callback is not callable, the log would fill the batch, no memory is free or others wait for it, or the
            batch is sealed. The caller then sends it the general way.
        :raises InvalidArgumentError: a name that is not text, or a value that cannot become text; nothing was done.
        """
        holder = self._holder
        contents = log.contents if type(log) is LogItem else log
        if holder is None or type(contents) is not dict or not (callback is None or callable(callback)):
            return None
        now, nanos = moment_of(self._clock.time())
        record = encode_log(log, now, nanos, self._fallback)
        length = len(record)
        charge = length + RECORD_OVERHEAD
        if self._lock._is_owned():  # an OwnedLock would cost more, for each log
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
            future = _new(SendFuture)  # without __init__, which would double the cost
            future._holder, future._position = holder, sends
            self._counts = size, logs, sends + 1, spent + charge
            return future

    def append(self, record: Record, logs: int, callback: Callback | None, charge: int) -> SendFuture | None:
        """Append one send of encoded logs, which may fill the batch.

        :param record: the logs, joined.
        :param logs: the number of logs.
        :param charge: the memory that it takes, which the caller has taken.
        :returns: the future; None, with nothing done, if the batch is sealed or has no room.
        """
        if self._lock._is_owned():  # as in add
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
        """True if a send of ``size`` bytes and ``logs`` logs is within the limits of a batch; a first send
        always is.
        """
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
        """Remove the remains of a log during which a signal handler raised."""
        del self._records[sends:]
        if self._callbacks is not None:
            del self._callbacks[sends:]
        if self._logs_of_send is not None:
            self._logs_of_send.pop(sends, None)

    def seal(self) -> Sealed:
        """Accept no more records, and return them. May be called again, until :meth:`forget`."""
        with self._lock:
            self._holder = None
            size, logs, sends, spent = self._counts
            self._clean(sends)
            callbacks, logs_of_send = self._callbacks or (), self._logs_of_send or ONE_LOG_EACH
            return Sealed(self._records, size, logs, sends, spent, callbacks, logs_of_send)

    def forget(self) -> None:
        """Drop everything but the counts. Takes no lock: in a forked child, a thread of the parent may hold it."""
        self._holder = None
        self._records, self._callbacks, self._logs_of_send = [], None, None

    @property
    def closed(self) -> bool:
        """True if it accepts no more records."""
        return self._holder is None

    @property
    def size(self) -> int:
        """The size of the body so far, bytes."""
        return self._counts[0]

    @property
    def logs(self) -> int:
        """The number of logs."""
        return self._counts[1]

    @property
    def sends(self) -> int:
        """The number of sends."""
        return self._counts[2]

    @property
    def spent(self) -> int:
        """The memory taken for the records, bytes."""
        return self._counts[3]
