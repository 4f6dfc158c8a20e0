"""Leftovers: passes the records of failed batches to the producer's fallback, on a handler thread.

The records keep their memory until the handler has taken them, so a slow fallback slows down senders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...model.interfaces import Record, Sink
from ...model.records import StreamKey, plain
from ...model.results import Result
from ...runtime.clock import Clock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.plural import counted
from ..batching.batch import ProducerBatch
from ..batching.memory import Refund
from .backing import Backing, Body

_log = get_logger("loghub.handler")

#: The function that gets the encoded records of a failed batch of a stream.
Fallback = Callable[[StreamKey, Sequence[Record], Result], object]
#: Enqueues a call on the handler thread of failed records.
Enqueue = Callable[[Callable[[], object]], None]


class Leftovers(Backing):
    """The backing of records that exist only in memory, where the producer has a fallback.

    :param fallback: called on the handler thread; an error that it raises is logged.
    :param sink: decodes the bodies.
    :ivar enqueue: set before the first batch.
    """

    enqueue: Enqueue

    def __init__(self, fallback: Fallback, sink: Sink, clock: Clock) -> None:
        self._fallback, self._sink = fallback, sink
        self._errors = RateLimitedLog(clock)

    def failed(self, batch: ProducerBatch, result: Result, refund: Refund, body: Body) -> None:
        self.enqueue(partial(self._fall_back, plain(batch.key), batch.log_count, body, result, refund))

    def _fall_back(self, key: StreamKey, logs: int, body: Body, result: Result, refund: Refund) -> None:
        try:
            records = body.records or () if body.payload is None else self._sink.decode(body.payload)
            refund.pay()
            self._fallback(key, records, result)
        except BaseException as error:  # noqa: BLE001  # user code
            suffix = self._errors.due_error(error)
            if suffix is not None:
                words = counted(logs, "undelivered log is", "undelivered logs are")
                _log.exception("%s/%s: the fallback failed, and %s lost%s", *key[:2], words, suffix)
        finally:
            refund.pay()
