"""Stream: a handle bound to one stream of a producer."""

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
from ..model.results import Callback, Result
from ..model.sequence import Numbering
from ..runtime.compiled import either
from ..runtime.send_timeout import waiting_at_most
from ..text.extras import how_to_install
from ..text.migration_hints import by_name
from .at_exit import wait_for_signal
from .timeouts import check_timeout

if TYPE_CHECKING:
    from ..model.interfaces import Record
    from ..pipeline.batching.open_records import OpenRecords
    from ..pipeline.sender import Sender
    from .arrow import ArrowPiece, ArrowSender

#: One log, as ``send`` takes it.
Log = Mapping[str, Any] | LogItem


class Owner(Protocol):
    """The private methods of a producer that its streams call."""

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
    """A handle bound to one stream of a producer, from :meth:`Producer.stream`; cheap, thread-safe, picklable.

    Example:

        >>> stream = producer.stream("my-project", "app-log", topic="web")
        >>> future = stream.send({"level": "INFO", "message": "hello"}, urgent=True)
        >>> future.result(timeout=10).successful
        True

    :ivar key: the key of the stream: project, logstore, topic, source, shard hash and tags.
    :ivar max_block_ms: how long ``send`` may block for memory or for room in the channel, milliseconds; negative to
        wait forever, None for the producer's configuration.
    """

    __slots__ = ("_open", "_producer", "key", "max_block_ms")

    def __init__(self, producer: Owner, key: StreamKey, max_block_ms: int | None = None) -> None:
        self._producer = producer
        self.key = key
        self.max_block_ms = max_block_ms
        # The stream's open batch. Threads may overwrite each other's value: nothing is lost by it.
        self._open: OpenRecords | None = None

    def send(
        self, log: Log | Sequence[Log], *more: Never, callback: Callback | None = None, urgent: bool = False
    ) -> SendFuture:
        """Enqueue one log, or a list of logs for the same batch; return once memory is reserved.

        With a channel, the call returns once the record is stored there.

        Example:

            >>> results = []
            >>> future = stream.send({"level": "INFO"}, callback=results.append, urgent=True)
            >>> producer.flush()
            >>> results[0].successful
            True

        :param log: a mapping of field names to values, a :class:`~producer.LogItem`, or a list of these. A list goes
            into one batch or is refused. Later changes to these objects have no effect.
        :param callback: a function called once with the :class:`~producer.Result`, on success and on failure, on a
            handler thread. An exception raised in it is logged. None for no callback.
        :param urgent: True to send the log and its open batch at once, as :meth:`hurry` does, without waiting for
            ``linger_ms``. With a channel this affects only records that have left the channel.
        :returns: the future of the :class:`~producer.Result`.
        :raises StreamStoppedError: the stream is ordered, and one of its batches failed permanently.
        :raises InvalidArgumentError: a field name that is not text, a value that cannot be sent, or an argument that
            must be given by name.
        :raises LogSizeTooLargeError: the log is larger than a batch (8 MiB) or than ``total_size_in_bytes``.
        :raises MaxBatchCountExceedError: a list of more than 40,960 logs.
        :raises SendTimeoutError: no memory, or no room in the channel, within ``max_block_ms``.
        :raises ProducerClosedError: the producer's ``close`` has begun.
        :raises ChannelError: the channel could not store the log, for example on a full disk.
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
        """Send a log that the open batch did not take."""
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
        """Send a log through the producer; the next log goes to the batch that took it."""
        future = self._producer._send(self.key, log, callback)
        if type(log) in (dict, LogItem):
            self._open = self._producer._open_records(future)
        return future

    def hurry(self) -> None:
        """Send the stream's open batch at once, without waiting for ``linger_ms``; return without waiting.

        With a channel this affects only records that have left the channel.

        Example:

            >>> stream.hurry()
        """
        pipeline = self._producer._pipeline
        if pipeline is not None:
            pipeline.seal_stream(self.key)

    async def asend(
        self, log: Log | Sequence[Log], *more: Never, callback: Callback | None = None, urgent: bool = False
    ) -> SendFuture:
        """Do what :meth:`send` does without blocking the event loop.

        While no memory is free, a thread waits for it, as long as ``send`` would. With a channel, a thread stores the
        record. If the awaiting task is cancelled, the record may or may not have been accepted.

        Example:

            >>> import asyncio
            >>> async def log_one():
            ...     future = await stream.asend({"level": "INFO"}, urgent=True)
            ...     return await future  # only if the outcome matters
            ...
            >>> asyncio.run(log_one()).successful
            True

        :param log: as :meth:`send`.
        :param callback: as :meth:`send`.
        :param urgent: as :meth:`send`.
        :returns: the future of the :class:`~producer.Result`, which can be awaited.
        :raises ProducerError: as :meth:`send`, or no thread could be started.
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

    def send_and_wait(
        self,
        log: Log | Sequence[Log],
        *more: Never,
        timeout: float | None = None,
    ) -> Result:
        """Send a log and its open batch at once, and wait until the log is delivered.

        With a channel, the log first leaves the channel and lingers for ``linger_ms``.

        Example:

            >>> stream.send_and_wait({"level": "AUDIT"}, timeout=10).successful
            True

        :param log: as :meth:`send`.
        :param timeout: the limit of the wait for delivery, seconds; None to wait as long as the retries take. Memory is
            waited for as :meth:`send` does, up to ``max_block_ms``.
        :returns: the result of the delivered log.
        :raises ResultFailedError: the log was not delivered.
        :raises TimeoutError: not completed within ``timeout``; the delivery continues.
        :raises ProducerError: as :meth:`send`.
        """
        if more:
            raise self._by_name("send_and_wait takes the log", more)
        check_timeout(timeout)
        return self.send(log, urgent=True).result(timeout)

    async def asend_and_wait(
        self,
        log: Log | Sequence[Log],
        *more: Never,
        timeout: float | None = None,  # noqa: ASYNC109  # the delivery goes on
    ) -> Result:
        """Do what :meth:`send_and_wait` does without blocking the event loop.

        Cancelling the awaiting task ends the wait, not the delivery.

        Example:

            >>> import asyncio
            >>> asyncio.run(stream.asend_and_wait({"level": "AUDIT"}, timeout=10)).successful
            True

        :param log: as :meth:`send`.
        :param timeout: the limit of the wait for delivery, seconds; None to wait as long as the retries take.
        :returns: the result of the delivered log.
        :raises ResultFailedError: the log was not delivered.
        :raises TimeoutError: not completed within ``timeout``; the delivery continues.
        :raises ProducerError: as :meth:`asend`.
        """
        if more:
            raise self._by_name("asend_and_wait takes the log", more)
        check_timeout(timeout)
        from asyncio import wait_for  # most programs have no event loop, and asyncio is a large import

        return await wait_for(await self.asend(log, urgent=True), timeout)

    def send_many(self, logs: Iterable[Log], *more: Never, callback: Callback | None = None) -> list[SendFuture]:
        """Enqueue any number of logs in pieces of about a batch; much faster than one ``send`` each.

        Each piece is enqueued as soon as it is full, so logs from a generator need memory for one piece only. With a
        channel all logs are stored in one transaction, all or none. They may not exceed ``total_size_in_bytes``
        together.

        Example:

            >>> futures = stream.send_many({"line": str(number)} for number in range(10_000))
            >>> producer.flush()
            >>> all(future.result().successful for future in futures)
            True

        :param logs: the logs, as :meth:`send` takes them one by one; any iterable.
        :param callback: a function called once for each piece with its :class:`~producer.Result`; None for no callback.
        :returns: one future for each piece, in order; together they cover all logs.
        :raises SendTimeoutError: no memory for the next piece. The error's ``accepted`` has the futures of the earlier
            pieces, ``accepted_logs`` the number of their logs. This holds for the next three errors as well.
        :raises ProducerClosedError: the producer's ``close`` has begun.
        :raises StreamStoppedError: the stream is ordered, and one of its batches failed permanently.
        :raises InvalidArgumentError: as :meth:`send`, or a log that is too large; with the log's position.
        :raises TransactionFullError: more pieces than a transaction of the channel can hold; nothing was stored.
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
        r"""Enqueue the lines of a block, each as a log of one field, in pieces of about a batch.

        No Python code runs for a single line. A line ends at ``\n`` or ``\r\n``. An empty line is a log, and so is a
        last line without an end. To read a file in blocks, pass ``block[: block.rfind(b"\n") + 1]``, and keep the rest
        for the next block. Bytes that are not UTF-8 appear as ``\xNN``. With a channel each piece is one transaction.

        Example:

            >>> futures = stream.send_lines(b"first line\nsecond line\n", key="message")

        :param block: the bytes, or a contiguous buffer of bytes such as a mapped file; it must not change during the
            call.
        :param key: the name of the field.
        :param time: the time of all the logs: seconds since 1970, or a datetime with a time zone; None for the time of
            the call.
        :param callback: a function called once for each piece with its :class:`~producer.Result`; None for no callback.
        :returns: one future for each piece, in order; together they cover all lines.
        :raises InvalidArgumentError: not a buffer of bytes, a name that is not text, or a time out of range.
        :raises LogSizeTooLargeError: a line that is too large for a batch, with its number from 0; earlier lines were
            accepted.
        :raises ProducerError: as :meth:`send`. The error's ``accepted`` has the futures of the accepted pieces,
            ``accepted_logs`` the number of their logs.
        """
        return self._producer._send_lines(self.key, block, key, time, callback)

    @property
    def stopped(self) -> StreamStoppedError | None:
        """The error that stopped the stream: one of its batches failed permanently.

        None if the stream is not stopped, or not ordered.

        Example:

            >>> stream.stopped is None
            True
        """
        pipeline = self._producer._pipeline
        return None if pipeline is None else pipeline.stopped(self.key)

    def resume(self) -> None:
        """Resume a stopped stream after the records that failed; do nothing if it is not stopped.

        With a channel, the records that wait there are delivered first.

        Example:

            >>> if stream.stopped:
            ...     stream.resume()
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
        """Enqueue the rows of Arrow data, each as a log with a field for each column that is not null.

        This is the fastest way to send. The data is checked, encoded and enqueued in slices of one to two megabytes, so
        it may be larger than memory. With a channel each slice is one transaction. Needs the extra ``arrow``.

        Example:

            >>> import pyarrow
            >>> table = pyarrow.table({"level": ["INFO", "WARN"], "seconds": [1_700_000_000, 1_700_000_001]})
            >>> futures = stream.send_arrow(table, time_column="seconds")

        :param data: a ``pyarrow`` RecordBatch, Table or RecordBatchReader, or any object with ``__arrow_c_stream__`` or
            ``__arrow_c_array__``.
        :param time_column: the column with the times of the logs: timestamps with a zone, or seconds since 1970. Null,
            or no column: the time of the call.
        :param topic_column: the column with the topics; null, or no column, for the stream's topic.
        :param source_column: the column with the sources; null, or no column, for the stream's source.
        :param shard_hash_column: the column with the shard hashes; null, or no column, for the stream's hash.
        :param contents_column: a map column whose entries become fields of the log.
        :param callback: a function called once for each piece with its :class:`~producer.Result`; None for no callback.
        :returns: one future for each piece that went into a batch, in order; together they cover all rows.
        :raises InvalidArgumentError: a column that is missing or has the wrong type, or a value that cannot be sent,
            with its row.
        :raises LogSizeTooLargeError: a row that is too large for a batch, with its number.
        :raises ProducerError: as :meth:`send`. The error's ``accepted`` has the futures of the accepted pieces,
            ``accepted_logs`` the number of their logs.
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
        """Yield the pieces of one RecordBatch as they are accepted, each with the rows that it holds.

        :raises ProducerError: after the pieces that were accepted.
        """
        return self._producer._arrow_sender(self.key, batch.schema, options, callback).pieces(batch)

    def _send_numbered(self, record: Record, logs: int, number: int) -> SendFuture:
        """Enqueue encoded logs as one batch with this sequence number; the stream must have a ``SequenceKey``.

        One thread at a time may use the stream, and numbers must increase.

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
    """Replace :meth:`Stream.send` by its native implementation where that is compiled, unless it was replaced already.

    This is not done at the import of this module: the native implementation is imported with the pipeline.
    """
    twin = either("producer.pipeline.batching._open_records", "send", _PURE_SEND)
    if twin is not _PURE_SEND and Stream.send is _PURE_SEND:
        Stream.send = update_wrapper(twin, _PURE_SEND)  # type: ignore[method-assign]  # native where compiled


def arrow_sending() -> ModuleType:
    """Import the module behind ``send_arrow``, which needs more libraries than the package.

    :raises ImportError: the extra ``arrow`` is not installed.
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
