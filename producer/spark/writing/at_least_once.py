"""Send the rows of one task at least once: each row is acknowledged or handled as refused, or the task fails.

Rows are sent as they come, with many requests in flight. If LogHub refuses a request because of its content, its rows
are sent again in halves, until the rows at fault are found and the others are stored.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...client.producer import Producer
from ...client.stream import Stream
from ...model.errors import ProducerError, ResultFailedError
from ...model.futures import SendFuture
from ...model.results import Result
from ..ack_timeout import send_open
from ..errors import DeliveryFailedError
from ..failure_reason import blames_rows, reason_of
from .options import WriteOptions
from .refusals import UNSENDABLE, Refusals, blames_row, full_reason, reason_of_error
from .rows import Rows


@dataclass(frozen=True, slots=True)
class _Sent:
    """A piece of a batch in flight.

    :ivar future: the future of its delivery.
    :ivar rows: its rows.
    :ivar size: its encoded bytes.
    """

    future: SendFuture
    rows: Rows
    size: int


class AtLeastOnce:
    """The sender of one task's rows.

    :param producer: the producer to send with.
    :param options: the options of the write.
    :param refusals: the handler of refused rows.
    """

    def __init__(self, producer: Producer, options: WriteOptions, refusals: Refusals) -> None:
        target = options.target
        self._producer = producer
        self._stream: Stream = producer.stream(
            target.project.project, target.logstore, topic=options.topic, source=options.source
        )
        self._options = options
        self._columns: dict[str, Any] = dict(options.columns.as_arguments())
        self._refusals, self._metrics = refusals, refusals.metrics
        self._sent: deque[_Sent] = deque()
        self._rows = 0
        self._last_result: Result | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch of rows.

        :raises DeliveryFailedError: rows of this or an earlier batch were not acknowledged, or were refused with
            ``onFailure=fail``.
        """
        rows = Rows(batch, range(self._rows, self._rows + batch.num_rows), self._options.row_labels)
        self._rows += batch.num_rows
        self._send(rows)
        # Not only from the head: acknowledged rows behind a slow request need not stay in memory.
        for sent in [sent for sent in self._sent if sent.future.done()]:
            self._sent.remove(sent)
            self._complete(sent)

    def finish(self) -> None:
        """Wait until every row is acknowledged, or handled as refused.

        :raises DeliveryFailedError: rows were not acknowledged, or were refused with ``onFailure=fail``.
        """
        if self._sent:
            self._flush()
        while self._sent:
            self._complete(self._sent.popleft())

    def _flush(self) -> None:
        """Send open batches without lingering."""
        try:
            send_open(self._producer)
        except ProducerError as error:
            raise self._not_acknowledged(self._sent[0].rows, str(error)) from error

    def _send(self, rows: Rows) -> None:
        taken = []
        try:
            for piece in self._stream._send_arrow_pieces(rows.batch, **self._columns):
                taken.append(piece.rows)
                self._sent.append(_Sent(piece.future, rows.pick(piece.rows), piece.size))
        except UNSENDABLE as error:
            rest = rows.without(taken)
            if not blames_row(error):
                raise self._not_acknowledged(rest, full_reason(error)) from error
            self._send_valid(rest, error)
        except ProducerError as error:
            raise self._not_acknowledged(rows.without(taken), str(error)) from error

    def _send_valid(self, rows: Rows, error: Exception) -> None:
        """Refuse the row that cannot become a log, and send the others."""
        if len(rows) == 1:
            self._refusals.refuse(rows, reason_of_error(error))
            return
        for half in rows.halves():
            self._send(half)

    def _complete(self, sent: _Sent) -> None:
        try:
            result = sent.future.result(self._options.ack_timeout)
        except TimeoutError as error:
            raise self._not_acknowledged(sent.rows, str(error)) from error
        except ResultFailedError as error:
            self._after_failure(sent, error.result)
            return
        self._metrics.rows += len(sent.rows)
        self._metrics.bytes += sent.size
        # Pieces of the same batch share one result: count it once.
        if result is not self._last_result:
            self._last_result = result
            self._metrics.batches += 1
            self._metrics.attempts += result.attempt_count
            self._metrics.retries += result.attempt_count - 1

    def _after_failure(self, sent: _Sent, result: Result) -> None:
        if not blames_rows(result):
            raise self._not_acknowledged(sent.rows, str(reason_of(result)))
        if len(sent.rows) == 1:
            self._refusals.refuse(sent.rows, reason_of(result))
            return
        for half in sent.rows.halves():
            self._send_alone(half)

    def _send_alone(self, rows: Rows) -> None:
        """Send these rows in requests of their own, and wait for them."""
        others, self._sent = self._sent, deque()
        try:
            self._send(rows)
            self.finish()
        finally:
            self._sent = others

    def _not_acknowledged(self, rows: Rows, reason: str) -> DeliveryFailedError:
        in_flight = sum(len(other.rows) for other in self._sent)
        return self._refusals.not_acknowledged(rows, reason, f"; still in flight: {in_flight}")
