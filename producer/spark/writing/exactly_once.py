"""Sends the rows of one task so that each arrives once, whatever is run again: the task, a copy of it, the whole query.

The rows of a part that go to the same stream are cut into chunks by their number and size alone, and each chunk is one
request: under a hash key made of the part's name, and with a sequence number made of the place of the chunk's last row
in the partition. Whoever sends the same rows in the same order makes the same requests, and LogHub stores each of them
once: it refuses a number that is not above the last one of its key. One request of a key is on its way at a time, so
all before the last one are stored as well.

Chunks do not depend on how Spark cuts the rows into batches of columns, nor on the time. A chunk that is refused for
what is in it goes in halves, and these in halves, whose numbers lie between those of its neighbours: the last part of a
chunk has a number below the chunk's own. So another attempt finds the same rows at fault, since it sends the whole
chunk, under its own number, before it sends parts.

Source: LogHub protocol, Idempotent write.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...client.producer import Producer
from ...client.stream import Stream
from ...model.errors import InvalidArgumentError, ProducerError, ResultFailedError
from ...model.futures import SendFuture
from ...model.interfaces import Record
from ...model.results import Result
from ...model.sequence import SequenceKey
from ...runtime.clock import SystemClock
from ...text.plural import counted
from ...wire.columnar import ColumnarEncoder, EncodedRows, Names
from ...wire.put_logs import adjust_shard_hash
from ...wire.text import moment_of
from ..errors import DeliveryFailedError
from ..failure_reason import Reason, blames_rows, reason_of
from .metrics import WriteMetrics
from .options import OnFailure, WriteOptions
from .part import Part
from .refusals import UNSENDABLE, Refusals, blames_row, full_reason, reason_of_error
from .rows import Rows

_KEY_BITS = 128
# Between the numbers of chunks that end with neighbouring rows: a chunk is cut in halves no more often.
_NUMBERS_A_ROW = 32
# What the chunks that are being filled may take together, roughly, and what each may at least, bytes.
_FILLING, _SMALLEST = 32 << 20, 4096
# Pieces of a chunk before they are joined: each takes some memory of its own.
_MOST_PIECES = 16
# Of a batch so large a part keeps the whole of it in memory until it is acknowledged; a smaller one is copied.
_LARGE_PART = 4
# Of a shard hash that is not adjusted, as many bits choose the shard; the others tell writers apart.
_SHARD_BITS = 64


def hash_key(part: Part, names: Names, buckets: int | None, cut: str = "") -> str:
    """The hash key under which a part of a write sends the rows of one stream: 32 hexadecimal digits.

    :param part: the part.
    :param names: the stream's own topic, source and shard hash.
    :param buckets: how many ranges of the hash space a shard hash is rounded to; None takes it as it is.
    :param cut: what decides how the rows are cut into chunks.
    :raises InvalidArgumentError: a shard hash that is to be taken as it is, and is none.
    """
    what = [part.run, part.batch, str(part.number), *(repr(name) for name in names), cut]
    digest = int(hashlib.sha256("\0".join(what).encode()).hexdigest()[:32], 16)
    if names.shard_hash is None:
        return f"{digest:032x}"
    if buckets is None:
        chosen, bits = _hexadecimal(names.shard_hash), _SHARD_BITS
    else:
        chosen, bits = int(adjust_shard_hash(names.shard_hash, buckets), 16), (buckets - 1).bit_count()
    free = _KEY_BITS - bits
    return f"{chosen >> free << free | digest & (1 << free) - 1:032x}"


def _hexadecimal(shard_hash: str) -> int:
    try:
        if len(shard_hash) == _KEY_BITS // 4:
            return int(shard_hash, 16)
    except ValueError:
        pass
    rule = "without adjust_shard_hash a shard hash must be 32 hexadecimal digits"
    raise InvalidArgumentError(f"{rule}, got {shard_hash!r}")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one stream, encoded.

    :ivar parts: the rows; they are put together only for those who look at them, which is after a failure.
    :ivar body: their records.
    :ivar depth: how often their chunk was cut in halves.
    """

    parts: tuple[Rows, ...]
    body: Record
    depth: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def rows(self) -> Rows:
        """All of them."""
        return self.parts[0] if len(self.parts) == 1 else Rows.joined(self.parts)

    @property
    def number(self) -> int:
        """The sequence number of a request of these rows."""
        return (int(self.parts[-1].numbers[-1]) + 1) * _NUMBERS_A_ROW - self.depth


class ExactlyOnce:
    """The rows of a task on their way: a line of requests for each stream.

    :param producer: sends.
    :param options: of the write.
    :param refusals: what becomes of refused rows.
    :param metrics: counts.
    :param part: which part of which write the task is.
    """

    def __init__(
        self, producer: Producer, options: WriteOptions, refusals: Refusals, metrics: WriteMetrics, part: Part
    ) -> None:
        self._producer = producer
        self._options = options
        self._refusals = refusals
        self._metrics = metrics
        self._part = part
        self._encoder: tuple[pa.Schema, ColumnarEncoder] | None = None
        self._lines: dict[Names, _Line] = {}
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch of rows; an error may be about earlier ones.

        :raises DeliveryFailedError: rows were not acknowledged, or refused with ``onFailure=fail``.
        """
        numbers = range(self._rows, self._rows + batch.num_rows)
        self._rows += batch.num_rows
        encoder = self._encoder_of(batch.schema)
        for names, rows, places in encoder.streams(batch):
            group = Rows(rows, Rows(batch, numbers).pick(places).numbers, self._options.row_labels)
            line = self._line(names, group, encoder)
            if line is not None:
                line.add(group, encoder, batch.num_rows)

    def finish(self) -> None:
        """Wait until every row is acknowledged, or refused and dealt with.

        :raises DeliveryFailedError: as :meth:`write`.
        """
        for line in self._lines.values():
            line.close()
        for line in self._lines.values():
            line.settle()

    def _encoder_of(self, schema: pa.Schema) -> ColumnarEncoder:
        if self._encoder is None or not self._encoder[0].equals(schema):
            self._encoder = schema, ColumnarEncoder(schema, **self._options.columns.as_arguments())
        return self._encoder[1]

    def _line(self, names: Names, rows: Rows, encoder: ColumnarEncoder) -> _Line | None:
        """The line of a stream; None if there can be no such stream, so that its rows were refused."""
        line = self._lines.get(names)
        if line is None:
            try:
                line = self._lines[names] = self._new_line(names, self._cut_of(rows, encoder))
            except InvalidArgumentError as error:
                self._refusals.refuse(rows, reason_of_error(error))
        return line

    def _cut_of(self, rows: Rows, encoder: ColumnarEncoder) -> str:
        """What decides how a stream's rows are cut into chunks, as far as its first row tells."""
        first = rows.pick(range(1)).batch
        try:
            row = bytes(encoder.encode(first, 0).body)
        except UNSENDABLE:  # it is refused when its turn comes
            row = b""
        options, columns = self._options, first.schema.remove_metadata().to_string()
        return f"{options.chunk_rows}\0{options.chunk_bytes}\0{columns}\0{hashlib.sha256(row).hexdigest()}"

    def _new_line(self, names: Names, cut: str) -> _Line:
        options, target = self._options, self._options.target
        config = options.config
        key = hash_key(self._part, names, config.buckets if config.adjust_shard_hash else None, cut)
        stream = self._producer.stream(
            target.project.project,
            target.logstore,
            topic=options.topic if names.topic is None else names.topic,
            source=options.source if names.source is None else names.source,
            idempotent=SequenceKey(key),
        )
        # Streams are met in the order of the rows, so that another attempt comes to the same sizes.
        size = min(options.chunk_bytes, max(_SMALLEST, _FILLING // (len(self._lines) + 1)))
        return _Line(stream, options, self._refusals, self._metrics, self._part.number, size)


class _Line:
    """The requests of one stream, one after the other.

    :param size: of a request at most, bytes before compression.
    """

    def __init__(
        self,
        stream: Stream,
        options: WriteOptions,
        refusals: Refusals,
        metrics: WriteMetrics,
        partition: int,
        size: int,
    ) -> None:
        self._size = size
        self._stream = stream
        self._options = options
        self._refusals = refusals
        self._metrics = metrics
        self._partition = partition
        self._clock = SystemClock()
        self._chunk: list[_Piece] = []
        self._chunk_rows = self._chunk_bytes = 0
        self._sent: tuple[_Piece, SendFuture] | None = None

    def add(self, rows: Rows, encoder: ColumnarEncoder, whole: int) -> None:
        """Cut these rows into chunks, and send those that are full.

        :param whole: how many rows the batch has that they are of.
        """
        if self._chunk and not self._chunk[0].parts[0].batch.schema.equals(rows.batch.schema):
            self.close()  # a chunk has one set of columns
        for valid, encoded in self._encoded(rows, encoder):
            self._cut(valid, encoded, whole)

    def _encoded(self, rows: Rows, encoder: ColumnarEncoder) -> Iterator[tuple[Rows, EncodedRows]]:
        """Those of the rows that can become logs, encoded; the others are refused."""
        try:
            encoded = encoder.encode(rows.batch, moment_of(self._clock.time())[0])
        except UNSENDABLE as error:
            if not blames_row(error):
                raise self._not_acknowledged(rows, full_reason(error)) from error
            if len(rows) == 1:
                self._refusals.refuse(rows, reason_of_error(error))
                return
            for half in rows.halves():
                yield from self._encoded(half, encoder)
            return
        yield rows, encoded

    def _cut(self, rows: Rows, encoded: EncodedRows, whole: int) -> None:
        ends, place = encoded.ends, 0
        while place < len(rows):
            start = int(ends[place - 1]) if place else 0
            most = min(len(rows), place + self._options.chunk_rows - self._chunk_rows)
            stop = bisect_right(ends, start + self._size - self._chunk_bytes, place, most)
            if stop == place and not self._chunk:
                stop = place + 1  # a row that is larger than a chunk is one of its own
            if stop == place:
                self.close()
                continue
            picked = rows.pick(range(place, stop))
            kept = picked if len(picked) * _LARGE_PART >= whole else picked.copied()
            self._chunk.append(_Piece((kept,), encoded.piece(place, stop)))
            if len(self._chunk) > _MOST_PIECES:
                joined = _joined(self._chunk)
                self._chunk = [_Piece((joined.rows,), joined.body)]
            self._chunk_rows += stop - place
            self._chunk_bytes += int(ends[stop - 1]) - start
            place = stop
            if self._chunk_rows >= self._options.chunk_rows or self._chunk_bytes >= self._size:
                self.close()

    def close(self) -> None:
        """Send the chunk that is not full."""
        if not self._chunk:
            return
        chunk = _joined(self._chunk)
        self._chunk, self._chunk_rows, self._chunk_bytes = [], 0, 0
        self.settle()
        self._send(chunk)

    def _send(self, chunk: _Piece) -> None:
        try:
            future = self._stream._send_numbered(chunk.body, len(chunk), chunk.number)
        except InvalidArgumentError as error:  # larger than a request may be
            if not blames_row(error):
                raise self._not_acknowledged(chunk.rows, full_reason(error)) from error
            self._cut_or_refuse(chunk, reason_of_error(error))
        except ProducerError as error:
            raise self._not_acknowledged(chunk.rows, str(error)) from error
        else:
            self._sent = chunk, future

    def settle(self) -> None:
        """Wait for the request that is on its way."""
        if self._sent is None:
            return
        (chunk, future), self._sent = self._sent, None
        try:
            result = future.result(self._options.ack_timeout)
        except TimeoutError as error:
            raise self._not_acknowledged(chunk.rows, str(error)) from error
        except ResultFailedError as error:
            if not blames_rows(error.result):
                raise self._not_acknowledged(chunk.rows, str(reason_of(error.result))) from error
            self._stream.resume()
            self._cut_or_refuse(chunk, reason_of(error.result))
        else:
            self._count(chunk, result)

    def _cut_or_refuse(self, chunk: _Piece, reason: Reason) -> None:
        """Send both halves of a refused chunk, in order; a single row is at fault itself.

        Where the task fails anyway, nothing of the chunk is sent: its rows may be mended, and come again as a whole.
        """
        rows = chunk.rows
        if len(rows) == 1 or self._options.on_failure is OnFailure.FAIL:
            self._refusals.refuse(rows, reason)
            return
        encoder = ColumnarEncoder(rows.batch.schema, **self._options.columns.as_arguments())
        for half in rows.halves():
            encoded = encoder.encode(half.batch, moment_of(self._clock.time())[0])
            self._send(_Piece((half,), encoded.body, chunk.depth + 1))
            self.settle()

    def _count(self, chunk: _Piece, result: Result) -> None:
        metrics = self._metrics
        metrics.rows += len(chunk)
        metrics.bytes += len(chunk.body)
        metrics.batches += 1
        metrics.attempts += result.attempt_count
        metrics.retries += result.attempt_count - 1
        if result.already_written:
            metrics.already_written += len(chunk)

    def _not_acknowledged(self, rows: Rows, reason: str) -> DeliveryFailedError:
        were = "was" if len(rows) == 1 else "were"
        return DeliveryFailedError(
            f"{rows} of partition {self._partition} for {self._options.target} {were} not acknowledged: "
            f"{' '.join(reason.split())}. Acknowledged by this task before: {counted(self._metrics.rows, 'row')}"
        )


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    return _Piece(tuple(part for piece in pieces for part in piece.parts), b"".join(piece.body for piece in pieces))
