"""Send the rows of one task exactly once, even if the task, a copy of it, or the whole query runs again.

The rows of a part that go to the same stream are cut into chunks, by number and size alone. Each chunk is one request.
Its hash key comes from the part's name, and its sequence number from the place of the chunk's last row in the
partition. So the same rows in the same order make the same requests. LogHub stores each request once: it refuses a
number that is not above the last one of its key. One request of a key is in flight at a time, so all earlier ones are
stored.

Chunks depend neither on how Spark cuts the rows into record batches, nor on the time. A chunk that is refused because
of its content is sent in halves, and these again. The numbers of the parts are below the chunk's own number, and above
the one of the chunk before. Another attempt sends the whole chunk first, so it finds the same rows at fault.

The idempotent write is part of the LogHub protocol.
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
from ...wire.columnar import ColumnarEncoder, EncodedRows, Names
from ...wire.put_logs import adjust_shard_hash
from ...wire.text import moment_of
from ..failure_reason import Reason, blames_rows, reason_of
from .options import WriteOptions
from .part import Part
from .refusals import UNSENDABLE, Refusals, blames_row, full_reason, reason_of_error
from .rows import Rows

_KEY_BITS = 128
# The sequence numbers for each row, and so the limit of how often a chunk can be halved.
_NUMBERS_A_ROW = 32
# The approximate memory of all chunks that are not sent yet, and the minimum of one chunk, bytes.
_OPEN_CHUNKS_BYTES, _SMALLEST = 32 << 20, 4096
# The limit of a chunk's pieces, which are then joined, because each takes some memory.
_MOST_PIECES = 16
# Rows below a fourth of their batch are copied: otherwise they would keep the whole batch in memory.
_LARGE_PART = 4
# The bits of an unadjusted shard hash that choose the shard; the others distinguish writers.
_SHARD_BITS = 64


def hash_key(part: Part, names: Names, buckets: int | None, cut: str = "") -> str:
    """Return the hash key of one stream of a part: 32 hexadecimal digits.

    :param part: the part of the write.
    :param names: the stream's own topic, source and shard hash.
    :param buckets: the number of buckets to adjust a shard hash to; None to leave it unadjusted.
    :param cut: the text of everything that decides how rows are cut into chunks.
    :raises InvalidArgumentError: an unadjusted shard hash is not 32 hexadecimal digits.
    """
    identity = [part.run, part.batch, str(part.number), *(repr(name) for name in names), cut]
    digest = int(hashlib.sha256("\0".join(identity).encode()).hexdigest()[:32], 16)
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
    """Encoded rows of one stream.

    :ivar parts: the rows, joined only after a failure.
    :ivar body: the encoded rows.
    :ivar depth: how often their chunk was halved.
    """

    parts: tuple[Rows, ...]
    body: Record
    depth: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def rows(self) -> Rows:
        """All rows, joined."""
        return self.parts[0] if len(self.parts) == 1 else Rows.joined(self.parts)

    @property
    def number(self) -> int:
        """The sequence number of a request of these rows."""
        return (int(self.parts[-1].numbers[-1]) + 1) * _NUMBERS_A_ROW - self.depth


class ExactlyOnce:
    """The sender of one task's rows, with a queue of requests for each stream.

    :param producer: the producer to send with.
    :param options: the options of the write.
    :param refusals: the handler of refused rows.
    :param part: the task's part of the write.
    """

    def __init__(self, producer: Producer, options: WriteOptions, refusals: Refusals, part: Part) -> None:
        self._producer = producer
        self._options = options
        self._refusals = refusals
        self._part = part
        self._encoder: tuple[pa.Schema, ColumnarEncoder] | None = None
        self._lines: dict[Names, _Line] = {}
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Send a batch of rows.

        :raises DeliveryFailedError: rows of this or an earlier batch were not acknowledged, or were refused with
            ``onFailure=fail``.
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
        """Wait until every row is acknowledged, or handled as refused.

        :raises DeliveryFailedError: rows were not acknowledged, or were refused with ``onFailure=fail``.
        """
        for line in self._lines.values():
            line.close()
        for line in self._lines.values():
            line.complete()

    def _encoder_of(self, schema: pa.Schema) -> ColumnarEncoder:
        if self._encoder is None or not self._encoder[0].equals(schema):
            self._encoder = schema, ColumnarEncoder(schema, **self._options.columns.as_arguments())
        return self._encoder[1]

    def _line(self, names: Names, rows: Rows, encoder: ColumnarEncoder) -> _Line | None:
        """Return the line of a stream; None if the stream is invalid, and its rows were refused."""
        line = self._lines.get(names)
        if line is None:
            try:
                line = self._lines[names] = self._new_line(names, self._cut_of(rows, encoder))
            except InvalidArgumentError as error:
                self._refusals.refuse(rows, reason_of_error(error))
        return line

    def _cut_of(self, rows: Rows, encoder: ColumnarEncoder) -> str:
        """Return the text of what decides how a stream's rows are cut: the limits, the columns and the first row."""
        first = rows.pick(range(1)).batch
        try:
            row = bytes(encoder.encode(first, 0).body)
        except UNSENDABLE:  # the row is refused later
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
        # The order of streams is that of the rows, so that another attempt gets the same sizes.
        size = min(options.chunk_bytes, max(_SMALLEST, _OPEN_CHUNKS_BYTES // (len(self._lines) + 1)))
        return _Line(stream, options, self._refusals, size)


class _Line:
    """The requests of one stream, one at a time.

    :param size: the limit of a request, bytes before compression.
    """

    def __init__(self, stream: Stream, options: WriteOptions, refusals: Refusals, size: int) -> None:
        self._size = size
        self._stream = stream
        self._options = options
        self._refusals = refusals
        self._clock = SystemClock()
        self._chunk: list[_Piece] = []
        self._chunk_rows = self._chunk_bytes = 0
        self._sent: tuple[_Piece, SendFuture] | None = None

    def add(self, rows: Rows, encoder: ColumnarEncoder, whole: int) -> None:
        """Add rows to chunks, and send the full ones.

        :param whole: the number of rows in the batch that the rows come from.
        """
        if self._chunk and not self._chunk[0].parts[0].batch.schema.equals(rows.batch.schema):
            self.close()  # a chunk has one set of columns
        for valid, encoded in self._encoded(rows, encoder):
            self._cut(valid, encoded, whole)

    def _encoded(self, rows: Rows, encoder: ColumnarEncoder) -> Iterator[tuple[Rows, EncodedRows]]:
        """Yield the rows that can become logs, encoded, and refuse the others."""
        try:
            encoded = encoder.encode(rows.batch, moment_of(self._clock.time())[0])
        except UNSENDABLE as error:
            if not blames_row(error):
                raise self._refusals.not_acknowledged(rows, full_reason(error)) from error
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
                stop = place + 1  # a row larger than the limit is a chunk of its own
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
        """Send the open chunk, if any."""
        if not self._chunk:
            return
        chunk = _joined(self._chunk)
        self._chunk, self._chunk_rows, self._chunk_bytes = [], 0, 0
        self.complete()
        self._send(chunk)

    def _send(self, chunk: _Piece) -> None:
        try:
            future = self._stream._send_numbered(chunk.body, len(chunk), chunk.number)
        except InvalidArgumentError as error:  # larger than a request's limit
            if not blames_row(error):
                raise self._refusals.not_acknowledged(chunk.rows, full_reason(error)) from error
            self._cut_or_refuse(chunk, reason_of_error(error))
        except ProducerError as error:
            raise self._refusals.not_acknowledged(chunk.rows, str(error)) from error
        else:
            self._sent = chunk, future

    def complete(self) -> None:
        """Wait for the request in flight, if any."""
        if self._sent is None:
            return
        (chunk, future), self._sent = self._sent, None
        try:
            result = future.result(self._options.ack_timeout)
        except TimeoutError as error:
            raise self._refusals.not_acknowledged(chunk.rows, str(error)) from error
        except ResultFailedError as error:
            if not blames_rows(error.result):
                raise self._refusals.not_acknowledged(chunk.rows, str(reason_of(error.result))) from error
            self._stream.resume()
            self._cut_or_refuse(chunk, reason_of(error.result))
        else:
            self._count(chunk, result)

    def _cut_or_refuse(self, chunk: _Piece, reason: Reason) -> None:
        """Send both halves of a refused chunk, in order; refuse a single row.

        With ``onFailure=fail`` nothing of the chunk is sent: its rows may be fixed, and sent again as a whole.
        """
        rows = chunk.rows
        if len(rows) == 1 or self._options.on_failure == "fail":
            self._refusals.refuse(rows, reason)
            return
        encoder = ColumnarEncoder(rows.batch.schema, **self._options.columns.as_arguments())
        for half in rows.halves():
            encoded = encoder.encode(half.batch, moment_of(self._clock.time())[0])
            self._send(_Piece((half,), encoded.body, chunk.depth + 1))
            self.complete()

    def _count(self, chunk: _Piece, result: Result) -> None:
        metrics = self._refusals.metrics
        metrics.rows += len(chunk)
        metrics.bytes += len(chunk.body)
        metrics.batches += 1
        metrics.attempts += result.attempt_count
        metrics.retries += result.attempt_count - 1
        if result.already_written:
            metrics.already_written += len(chunk)


def _joined(pieces: Sequence[_Piece]) -> _Piece:
    if len(pieces) == 1:
        return pieces[0]
    return _Piece(tuple(part for piece in pieces for part in piece.parts), b"".join(piece.body for piece in pieces))
