"""OpenRun: the end of an open batch, to which logs like the last one are added.

Most logs have the names of the log before them, and go to the same stream. Such a log needs no look-up of its stream,
and its check, its memory and its place in the batch take one lock together. Whatever is not so simple is refused here,
with nothing done, and takes the general way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..results import Callback, SendFuture
from ..wire.shape import Heads, Shape
from .batch import RECORD_OVERHEAD, ProducerBatch
from .memory import MemoryBudget

# A record of more bytes than these has a length of two bytes in front, or even of three: rare, and refused here.
_MAX_WITH_SHORT_LENGTH = 129
_MAX_SIZE = 16_384

_new = object.__new__


@dataclass(frozen=True, slots=True)
class RunLimits:
    """What all runs of an accumulator share.

    :ivar lock: guards the open batches, and the budget.
    :ivar budget: where memory is taken from.
    :ivar time: the time of day, seconds since the epoch.
    :ivar threshold_bytes: a batch of this size is full.
    :ivar threshold_count: likewise, logs.
    """

    lock: threading.Lock
    budget: MemoryBudget
    time: Callable[[], float]
    threshold_bytes: int
    threshold_count: int


class OpenRun:
    """See the module; made and closed under the accumulator's lock.

    :param batch: whose end this is, as long as it is the batch's ``run``.
    :param shape: of the logs.
    :param heads_of: makes the heads of the records of a second.
    """

    __slots__ = (
        "_batch",
        "_budget",
        "_fields",
        "_fields_of",
        "_fields_of_any",
        "_first",
        "_futures",
        "_head",
        "_heads_of",
        "_lock",
        "_names",
        "_now",
        "_threshold_bytes",
        "_threshold_count",
        "_time",
        "_until",
    )

    def __init__(self, batch: ProducerBatch, shape: Shape, heads_of: Callable[[int], Heads], limits: RunLimits) -> None:
        self._names: tuple[str, ...] | None = shape.names
        self._fields_of, self._fields_of_any = shape.fields_of, shape.fields_of_any
        self._batch: ProducerBatch | None = batch
        self._futures = batch.futures
        self._heads_of = heads_of
        self._lock = limits.lock
        self._budget = limits.budget
        self._time = limits.time
        self._threshold_bytes = limits.threshold_bytes
        self._threshold_count = limits.threshold_count
        self._begin_second(batch, limits.time())

    def takes(self, shape: Shape) -> bool:
        """Whether logs of this shape belong here."""
        return self._names == shape.names

    @property
    def closed(self) -> bool:
        """Whether it takes no more logs."""
        return self._names is None

    def close(self) -> None:
        """Take no more logs, and hold nothing; a second time changes nothing."""
        # The names first: in a forked child nobody may touch the lock, and this keeps everybody from it.
        self._names = self._batch = None
        self._fields, self._futures = list[str](), []

    def add(self, log: Mapping[str, Any], callback: Callback | None) -> SendFuture | None:
        """Add a log.

        :param log: a dictionary.
        :returns: the future; None if the log does not belong here, or needs a closer look: nothing was done then.
        :raises InvalidArgumentError: a value that cannot become text.
        """
        if tuple(log) != self._names:
            return None
        now = self._time()
        if not self._now <= now < self._until:
            self._change_second(now)
        fields = self._fields_of(log.values())
        if fields is None:
            fields = self._fields_of_any(log)
        size = len(fields) + self._head
        if size > _MAX_WITH_SHORT_LENGTH:
            if size > _MAX_SIZE:
                return None
            size += 1
        charge = size + RECORD_OVERHEAD
        budget = self._budget
        future = _new(SendFuture)
        future._callback = callback
        with self._lock:
            batch = self._batch
            if batch is None or budget.waiters:
                return None
            used, filled, count = budget.used + charge, batch.size + size, batch.log_count + 1
            if used > budget.limit or filled >= self._threshold_bytes or count >= self._threshold_count:
                return None
            future._holder = batch
            try:
                self._futures.append(future)
                self._fields.append(fields)
            except BaseException:  # raised by a signal handler, which runs after a call
                self._take_back(future)
                raise
            # No calls from here on: all of this happens.
            budget.used, batch.size, batch.log_count = used, filled, count
            batch.held += charge
            if callback is not None:
                batch.heeded = True
        return future

    def _change_second(self, now: float) -> None:
        with self._lock:
            if self._batch is not None and not self._now <= now < self._until:
                self._begin_second(self._batch, now)

    def _begin_second(self, batch: ProducerBatch, now: float) -> None:
        """Put what comes from now on behind heads with that time. The caller holds the lock."""
        heads = self._heads_of(int(now))
        self._fields = batch.begin_records(heads)
        #: The position of the first future that belongs to them.
        self._first = len(batch.futures)
        #: The bytes before the fields of a record of less than 128 bytes.
        self._head = len(heads.time) + 2
        # Numbers of the clock's type: to compare an integer with them costs as much again.
        self._now, self._until = float(heads.now), heads.now + 1.0

    def _take_back(self, future: SendFuture) -> None:
        """Let ``future`` and its log be in neither list, whichever they came into."""
        if self._futures[-1:] == [future]:
            self._futures.pop()
        del self._fields[len(self._futures) - self._first :]
