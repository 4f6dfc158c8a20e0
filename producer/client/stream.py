"""Stream: a handle bound to one stream of a producer, which does the work."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from types import ModuleType
from typing import TYPE_CHECKING, Any, Never, Protocol

from ..model.errors import InvalidArgumentError, ProducerClosedError, StreamStoppedError
from ..model.futures import SendFuture
from ..model.records import LogItem, StreamKey
from ..model.results import Callback
from ..model.sequence import Numbering
from ..runtime.compiled import either
from ..runtime.send_timeout import waiting_at_most
from ..text.extras import how_to_install
from ..text.migration_hints import by_name
from .at_exit import wait_for_signal

if TYPE_CHECKING:
    from ..model.interfaces import Record
    from ..pipeline.batching.open_records import OpenRecords
    from ..pipeline.sender import Sender
    from .arrow import ArrowPiece, ArrowSender

#: What ``send`` takes for one log.
Log = Mapping[str, Any] | LogItem


class Owner(Protocol):
    """What a stream needs of the producer that it belongs to, and nobody else may call."""

    name: str
    _pipeline: Sender | None

    def _make_pipeline(self) -> Sender: ...

    def _open_records(self, future: SendFuture) -> OpenRecords | None: ...

    def _send(self, key: StreamKey, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture: ...

    async def _asend(self, stream: Stream, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture: ...

    def _send_many(self, key: StreamKey, logs: Iterable[Log], callback: Callback | None) -> list[SendFuture]: ...

    def _send_lines(
        self, key: StreamKey, block: Any, field: str, time: float | datetime | None, callback: Callback | None
    ) -> list[SendFuture]: ...

    def _arrow_sender(
        self, key: StreamKey, schema: Any, options: Mapping[str, str | None], callback: Callback | None
    ) -> ArrowSender: ...


class Stream:
    """A handle bound to one stream of a producer; made by :meth:`Producer.stream`. Cheap, thread-safe, picklable.

    :ivar key: the stream.
    :ivar max_block_ms: how long ``send`` waits for memory, milliseconds; negative waits for ever, None is the
        producer's configuration.
    """

    __slots__ = ("_open", "_producer", "key", "max_block_ms")

    def __init__(self, producer: Owner, key: StreamKey, max_block_ms: int | None = None) -> None:
        self._producer = producer
        self.key = key
        self.max_block_ms = max_block_ms
        # The end of the stream's open batch; threads may overwrite what another one wrote, and nothing is lost by it.
        self._open: OpenRecords | None = None

    def send(
        self, log: Log | Sequence[Log], *more: Never, callback: Callback | None = None, urgent: bool = False
    ) -> SendFuture:
        """As :meth:`Producer.send`, to this stream.

        :raises StreamStoppedError: the stream is ordered, and a batch of it has failed for good.
        """
        records = self._open
        if records is not None and not more and not urgent:
            future = records.add(log, callback)
            if future is not None:
                return future
        return self._send_otherwise(log, more, callback, urgent)

    def _send_otherwise(
        self, log: Log | Sequence[Log], more: Sequence[Never], callback: Callback | None, urgent: bool
    ) -> SendFuture:
        """Send what the open batch did not take, or was never offered."""
        if more:
            raise self._by_name("send takes the log", more)
        if urgent:
            future = self.send(log, callback=callback)
            self.hurry()
            return future
        if self.max_block_ms is None:
            return self._send(log, callback)
        with waiting_at_most(None if self.max_block_ms < 0 else self.max_block_ms / 1000):
            return self._send(log, callback)

    def _send(self, log: Log | Sequence[Log], callback: Callback | None) -> SendFuture:
        """Send it by the general way; the next log finds the batch that took it."""
        future = self._producer._send(self.key, log, callback)
        if type(log) in (dict, LogItem):
            self._open = self._producer._open_records(future)
        return future

    def hurry(self) -> None:
        """Send what was accepted of this stream now, without waiting for ``linger_ms``; returns at once.

        Behind a channel: only what has left the channel by now.
        """
        pipeline = self._producer._pipeline
        if pipeline is not None:
            pipeline.hand_on_stream(self.key)

    async def asend(
        self, log: Log | Sequence[Log], *more: Never, callback: Callback | None = None, urgent: bool = False
    ) -> SendFuture:
        """As :meth:`send`, without blocking the event loop: while there is no memory a thread waits, for as long as
        ``send`` would. Behind a channel a thread stores the record.

        If the waiting task is cancelled, the record may or may not have been accepted.

        :returns: the future of the delivery, which can be awaited: ``await (await stream.asend(log))``.
        """
        if more:
            raise self._by_name("asend takes the log", more)
        records = self._open
        future = None if records is None else records.add(log, callback)
        if future is None:
            future = await self._producer._asend(self, log, callback)
        if urgent:
            self.hurry()
        return future

    def send_many(self, logs: Iterable[Log], *more: Never, callback: Callback | None = None) -> list[SendFuture]:
        """Accept any number of logs, in pieces of about a batch; much faster than one ``send`` each.

        A piece is encoded and accepted as soon as it is full, so that logs from a generator need no more memory than a
        piece. With a channel all logs are stored in one transaction, all of them or none, and may not be more than
        ``total_size_in_bytes`` together.

        :param callback: called once for each piece.
        :returns: one future for each piece, in order; together they cover all logs.
        :raises SendTimeoutError: no memory for the next piece. The error's ``accepted`` and ``accepted_logs`` say how
            far it came: the futures of the pieces before, and how many logs those are. Likewise
            :class:`~producer.model.errors.ProducerClosedError` and :class:`~producer.model.errors.StreamStoppedError`.
        :raises InvalidArgumentError: as :meth:`Producer.send`, with the log's position; a log that is too large as
            well. Likewise with ``accepted``.
        :raises TransactionFullError: more pieces than a transaction of the channel holds; nothing was stored.
        """
        if more:
            raise self._by_name("send_many takes the logs", more)
        return self._producer._send_many(self.key, logs, callback)

    def send_lines(
        self,
        block: bytes | bytearray | memoryview,
        *,
        key: str = "content",
        time: float | datetime | None = None,
        callback: Callback | None = None,
    ) -> list[SendFuture]:
        r"""Accept the lines of a block, each a log of one field, in pieces of about a batch; no Python runs for a line.

        A line ends at ``\n`` or ``\r\n``; an empty line is a log, and so is a last line without an end. If you read a
        file in blocks, pass ``block[: block.rfind(b"\n") + 1]``, and keep the rest for the next block. Bytes that are
        not UTF-8 appear as ``\xNN``. With a channel each piece is one transaction.

        :param block: bytes, or contiguous memory of bytes, such as a mapped file; nobody may change it meanwhile.
        :param key: the name of the field.
        :param time: of all the logs: seconds since 1970, or a datetime with a time zone; None is the time of sending.
        :param callback: called once for each piece.
        :returns: one future for each piece, in order; together they cover all lines.
        :raises InvalidArgumentError: no such memory, a name that is not text, a time out of range.
        :raises LogSizeTooLargeError: a line that is too large for a batch, with its number from 0; what is before it
            was accepted.
        :raises ProducerError: as :meth:`send`. The error's ``accepted`` and ``accepted_logs`` say how far it came.
        """
        return self._producer._send_lines(self.key, block, key, time, callback)

    @property
    def stopped(self) -> StreamStoppedError | None:
        """Why the stream is stopped: a batch of it has failed for good; None if it is not, or not ordered."""
        pipeline = self._producer._pipeline
        return None if pipeline is None else pipeline.stopped(self.key)

    def resume(self) -> None:
        """Let a stopped stream go on, behind the records that failed; nothing if it is not stopped.

        Behind a channel, what waits there is delivered first.
        """
        pipeline = self._producer._pipeline
        if pipeline is not None:
            pipeline.resume(self.key)

    def send_arrow(
        self,
        data: Any,
        *,
        time_column: str | None = None,
        topic_column: str | None = None,
        source_column: str | None = None,
        shard_hash_column: str | None = None,
        contents_column: str | None = None,
        callback: Callback | None = None,
    ) -> list[SendFuture]:
        """Accept the rows of Arrow data, each a log with a field for each column that is not null; the fastest way.

        A slice of a megabyte or two at a time is checked, encoded and accepted as a whole, so data may be larger than
        memory. With a channel each slice is one transaction. Needs the extra ``arrow``.

        :param data: a ``pyarrow`` RecordBatch, Table or RecordBatchReader, or whatever has ``__arrow_c_stream__`` or
            ``__arrow_c_array__``.
        :param time_column: the column of the logs' times: timestamps with a zone, or seconds since 1970. Null is the
            time of sending.
        :param topic_column: the column of the logs' topics. Null is the stream's own; likewise the next two.
        :param source_column: the column of the logs' sources.
        :param shard_hash_column: the column of the logs' shard hashes.
        :param contents_column: a map whose entries are fields of the log.
        :param callback: called once for each piece.
        :returns: one future for each piece that went into a batch, in order; together they cover all rows.
        :raises InvalidArgumentError: a column that is not there, or of the wrong type; a value that cannot be sent, and
            a row that is too large for a batch (:class:`~producer.model.errors.LogSizeTooLargeError`): these name the
            row.
        :raises ProducerError: as :meth:`send`. The error's ``accepted`` and ``accepted_logs`` say how far it came.
        """
        options = {
            "time_column": time_column,
            "topic_column": topic_column,
            "source_column": source_column,
            "shard_hash_column": shard_hash_column,
            "contents_column": contents_column,
        }
        arrow = arrow_sending()
        schema, batches = arrow.batches_of(data)
        sender = self._producer._arrow_sender(self.key, schema, options, callback)
        try:
            return sender.send(batches)
        except ProducerClosedError:
            wait_for_signal()
            raise

    def _send_arrow_pieces(
        self, batch: Any, *, callback: Callback | None = None, **options: str | None
    ) -> Iterator[ArrowPiece]:
        """As :meth:`send_arrow`, for one RecordBatch: each piece as it is accepted, with the rows that it holds.

        :raises ProducerError: behind the pieces that were accepted.
        """
        return self._producer._arrow_sender(self.key, batch.schema, options, callback).pieces(batch)

    def _send_numbered(self, record: Record, logs: int, number: int) -> SendFuture:
        """Accept encoded logs as one batch under that number, on a stream that was opened with a ``SequenceKey``.

        One thread at a time may use the stream, and numbers must grow.

        :raises ProducerError: as :meth:`send`.
        """
        order = self.key.order
        if not isinstance(order, Numbering):
            raise InvalidArgumentError("the stream was opened without a SequenceKey")
        order.next = number
        pipeline = self._producer._pipeline or self._producer._make_pipeline()
        return pipeline.admission.accept(self.key, record, logs, None)

    def _by_name(self, takes: str, more: Sequence[object]) -> InvalidArgumentError:
        where = f"{self.key.project}/{self.key.logstore}"
        return InvalidArgumentError(by_name(f"a stream knows its logstore {where}: {takes}", "callback=...", more))

    def __reduce__(self) -> tuple[Any, ...]:
        return Stream, (self._producer, self.key, self.max_block_ms)

    def __repr__(self) -> str:
        order = f" {self.key.order}" if self.key.order else ""
        return (
            f"<Stream {self.key.project}/{self.key.logstore} topic={self.key.topic!r}{order} of {self._producer.name}>"
        )


_PURE_SEND = Stream.send


def use_compiled_send() -> None:
    """Have :meth:`Stream.send` be its compiled twin, where there is one, unless somebody has put another in its place.

    Not with this module: the twin comes with the pipeline.
    """
    twin = either("producer.pipeline.batching._open_records", "send", _PURE_SEND)
    if twin is not _PURE_SEND and Stream.send is _PURE_SEND:
        Stream.send = update_wrapper(twin, _PURE_SEND)  # type: ignore[method-assign]  # the native one, where it is compiled


def arrow_sending() -> ModuleType:
    """What ``send_arrow`` needs, and nothing else does.

    :raises ImportError: the extra is not installed.
    """
    try:
        return importlib.import_module(".arrow", __package__)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyarrow", "numpy"):
            raise
        raise ImportError(
            f"send_arrow needs {error.name}, which is not installed: {how_to_install('arrow')}",
            name=error.name,
        ) from error
