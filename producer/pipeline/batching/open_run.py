"""OpenRun: the end of an open batch, to which logs of known shapes are added.

Most logs have names that were sent before, and go to the stream of the log before them. Such a log needs no look-up of
its stream, and its check, its memory and its place in the batch take one lock together. Whatever is not so simple is
refused here, with nothing done, and takes the general way.
"""

from __future__ import annotations

from collections.abc import Callable
from time import sleep
from typing import Any

from ...results import Callback, SendFuture
from ...wire.log_group import LogEncoder
from ...wire.shape import Room, Shape
from .batch import RECORD_OVERHEAD, ProducerBatch
from .cut import CutRule
from .memory import MemoryBudget

# A record of more bytes than these has a length of two bytes in front, or even of three: rare, and refused here.
_MAX_WITH_SHORT_LENGTH = 129
_MAX_SIZE = 16_384

# A thread that waits in a lock owns it before it owns the interpreter; whoever has that one runs into the lock at its
# next log, and so all of them go on in step, with a change of threads for each log, for ever. Who had to wait therefore
# stands aside for a moment once it is through, until few enough are left to go on without meeting.
_STAND_ASIDE_SECONDS = 0.001

_new = object.__new__
_NO_SHAPE = Shape(("",), Room())


class OpenRun:
    """See the module; made and closed under the accumulator's lock.

    :param batch: whose end this is, as long as it is the batch's ``run``.
    :param encoder: knows the shapes, and makes the heads of a second.
    :param budget: where memory is taken from; its lock guards the batch.
    :param time: the time of day, seconds since the epoch; asked without the lock.
    :param cut: says when the batch is full: the log that fills it is refused here.
    :param now: the time of day.
    """

    __slots__ = (
        "_batch",
        "_budget",
        "_fields",
        "_first",
        "_futures",
        "_head",
        "_heads_of",
        "_lock",
        "_now",
        "_shape",
        "_shapes",
        "_threshold_bytes",
        "_threshold_count",
        "_time",
        "_until",
    )

    def __init__(
        self,
        batch: ProducerBatch,
        encoder: LogEncoder,
        budget: MemoryBudget,
        time: Callable[[], float],
        cut: CutRule,
        now: float,
    ) -> None:
        self._shapes = encoder.shapes
        self._shape = _NO_SHAPE  # of the last log
        self._batch: ProducerBatch | None = batch
        self._futures = batch.futures
        self._heads_of = encoder.heads
        self._lock = budget.lock
        self._budget = budget
        self._time = time
        self._threshold_bytes, self._threshold_count = cut.threshold_bytes, cut.threshold_count
        self._begin_second(batch, now)

    @property
    def closed(self) -> bool:
        """Whether it takes no more logs."""
        return self._batch is None

    def close(self) -> None:
        """Take no more logs, and hold nothing; a second time changes nothing."""
        # The batch first: in a forked child nobody may touch the lock, and this keeps everybody from it.
        self._batch = None
        self._fields, self._futures = list[str](), []

    # One function, since each further call would cost as much as five of its checks.
    def add(self, log: dict[str, Any], callback: Callback | None) -> SendFuture | None:  # noqa: C901
        """Add a log.

        :returns: the future; None if the log does not belong here, or needs a closer look: nothing was done then.
        :raises InvalidArgumentError: a value that cannot become text.
        """
        batch = self._batch
        if batch is None:
            return None
        log = log.copy()  # at once, whatever other threads do with it: names and values of one moment
        names, shape = tuple(log), self._shape
        if names != shape.names:
            known = self._shapes.get(names)
            if known is None:
                return None
            self._shape = shape = known
            known.used = True
        now = self._time()
        if not self._now <= now < self._until:
            self._change_second(now)
        fields = shape.fields_of(log.values())
        if fields is None:
            fields = shape.fields_of_any(log)
        size = len(fields) + self._head
        if size > _MAX_WITH_SHORT_LENGTH:
            if size > _MAX_SIZE:
                return None
            size += 1
        charge = size + RECORD_OVERHEAD
        budget = self._budget
        future = _new(SendFuture)
        future._callback = callback
        before = budget.used
        with self._lock:
            if self._batch is not batch or budget.waiters:
                return None
            waited = budget.used != before
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
        if waited:  # others sent meanwhile
            sleep(_STAND_ASIDE_SECONDS)
        return future

    def _change_second(self, now: float) -> None:
        with self._lock:
            if self._batch is not None and not self._now <= now < self._until:
                self._begin_second(self._batch, now)

    def _begin_second(self, batch: ProducerBatch, now: float) -> None:
        """Put what comes from now on behind heads with that time. The caller holds the lock."""
        self._shape.used = True
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
