"""send_arrow: Arrow tables become pieces of about a batch, one slice at a time.

A slice has one to two megabytes. It is encoded as a whole, cut into pieces at the ends of rows, and enqueued. So a
table of any size can be sent by a producer of any size. Where columns select the stream, the records of a slice are
sorted by stream before they are cut. The cuts depend only on the data and the configuration.

This module is imported by the first call of ``send_arrow``: it needs the extra ``arrow``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa

from ..model.config import ProducerConfig
from ..model.errors import InvalidArgumentError, LogSizeTooLargeError, ProducerError
from ..model.futures import SendFuture
from ..model.records import StreamKey
from ..model.results import Callback
from ..pipeline.admission import attach_accepted
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.cut import CutRule
from ..pipeline.sender import Door
from ..runtime.clock import Clock
from ..wire.columnar import ColumnarEncoder, Grouping, Names
from ..wire.text import moment_of
from .stream_keys import StreamKeys

#: Bytes that are encoded at once: smaller slices cost more for each byte, larger ones exceed the processor's caches.
SLICE_BYTES = 2 * 1024 * 1024
# A slice takes at most this fraction (one quarter) of the memory.
_PART_OF_MEMORY = 4
_MAX_SLICE_ROWS = 65_536
_KEYS_KEPT = 4096

Rows: TypeAlias = range | pa.Int64Array


@dataclass(frozen=True, slots=True)
class ArrowPiece:
    """Rows that were accepted together.

    :ivar future: the future of their result.
    :ivar logs: the number of rows.
    :ivar rows: their positions in the batch: a ``range`` if they are consecutive, else an Arrow array.
    :ivar size: their encoded size, bytes.
    """

    future: SendFuture
    logs: int
    rows: Rows
    size: int


@lru_cache(maxsize=64)
def encoder_of(schema: pa.Schema, options: tuple[tuple[str, str | None], ...]) -> ColumnarEncoder:
    """Return the encoder of a schema; it is cached, since it learns the lengths of values.

    :raises InvalidArgumentError: as :class:`ColumnarEncoder`.
    """
    return ColumnarEncoder(schema, **dict(options))


def batches_of(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema and the batches of an object that holds Arrow data.

    :raises InvalidArgumentError: not Arrow data.
    """
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches())
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data)
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    if hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
        return batch.schema, iter([batch])
    raise InvalidArgumentError(
        "data: must be a pyarrow RecordBatch, Table or RecordBatchReader, or have __arrow_c_stream__ or "
        f"__arrow_c_array__, got {type(data).__qualname__}"
    )


class ArrowSender:
    """Sends batches of one schema to one stream, or to the streams that its columns select.

    :param door: the entry to the pipeline.
    :param keys: makes the keys of streams that columns select.
    :param key: the stream.
    :param clock: the time of logs without a time of their own.
    :param callback: called once for each piece.
    """

    def __init__(
        self,
        door: Door,
        keys: StreamKeys,
        key: StreamKey,
        config: ProducerConfig,
        clock: Clock,
        encoder: ColumnarEncoder,
        callback: Callback | None,
    ) -> None:
        self._door, self._keys, self._key, self._clock = door, keys, key, clock
        self._encoder, self._callback = encoder, callback
        self._cut = CutRule.of(config)
        self._slice_bytes = max(1, min(SLICE_BYTES, config.total_size_in_bytes // _PART_OF_MEMORY))
        self._picked: dict[Names, StreamKey] = {}

    def send(self, batches: Iterable[pa.RecordBatch]) -> list[SendFuture]:
        """Send all batches, and return the futures of their pieces.

        :raises ProducerError: its ``accepted`` and ``accepted_logs`` say what was accepted.
        """
        futures: list[SendFuture] = []
        logs = row = 0
        try:
            for batch in batches:
                for piece in self.pieces(batch, row):
                    futures.append(piece.future)
                    logs += piece.logs
                row += batch.num_rows
        except BaseException as error:
            attach_accepted(error, futures, logs)
            raise
        return futures

    def pieces(self, batch: pa.RecordBatch, first_row: int = 0) -> Iterator[ArrowPiece]:
        """Send a batch, and yield its pieces; the later pieces of the same slice may be accepted already.

        :param first_row: the number of the first row in errors.
        :raises ProducerError: after the pieces that were accepted.
        """
        self._encoder.check(batch)
        for start, rows in self._slices(batch):
            pieces, places = self._encoded(rows, start, first_row)
            try:
                futures: Sequence[SendFuture] = self._door.accept_pieces(pieces, self._callback)
            except ProducerError as error:
                yield from _accepted(cast("Sequence[SendFuture]", error.accepted), pieces, places)
                raise
            yield from _accepted(futures, pieces, places)

    def _slices(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield slices of about the right size: first row, and rows. A batch without rows has none."""
        rows = batch.num_rows
        size = self._encoder.estimate(batch) if rows else 0
        step = max(1, min(_MAX_SLICE_ROWS, rows * self._slice_bytes // max(1, size)))
        for start in range(0, rows, step):
            yield from self._halved(start, batch.slice(start, step))

    def _halved(self, start: int, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield a slice, halved until it is not much larger than the others."""
        count = rows.num_rows
        if count == 1 or self._encoder.estimate(rows) <= 2 * self._slice_bytes:
            yield start, rows
            return
        yield from self._halved(start, rows.slice(0, count // 2))
        yield from self._halved(start + count // 2, rows.slice(count // 2))

    def _encoded(self, batch: pa.RecordBatch, start: int, first_row: int) -> tuple[list[Piece], list[Rows]]:
        """Encode a slice; return its pieces, all of them checked, and the rows of each.

        :param start: the position of its first row in the batch.
        :param first_row: the number of the batch's first row in errors.
        :raises InvalidArgumentError: a value that cannot be sent, or a row that is too large; with the row.
        """
        grouping, first = self._encoder.group(batch), start + first_row
        now = moment_of(self._clock.time())[0]
        encoded = self._encoder.encode(batch, now, range(first, first + batch.num_rows))
        if not isinstance(grouping.rows, range):
            encoded = encoded.in_order(grouping.rows)
        pieces, places = list[Piece](), list[Rows]()
        for names, begin, stop in self._cuts(grouping, encoded.ends):
            row = first + int(grouping.rows[begin])
            pieces.append(self._piece(names, encoded.piece(begin, stop), stop - begin, row))
            places.append(_rows(grouping.rows[begin:stop], start))
        return pieces, places

    def _piece(self, names: Names, record: memoryview, logs: int, row: int) -> Piece:
        try:
            piece = Piece(self._key_of(names), record, logs)
            self._door.check_size(piece)
        except LogSizeTooLargeError as error:
            raise LogSizeTooLargeError(error.size, error.limit, f"row {row}: {error.what}") from error
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"row {row}: {error}") from error
        return piece

    def _key_of(self, names: Names) -> StreamKey:
        """Return the key of the stream that columns select.

        :raises InvalidArgumentError: an invalid shard hash, or names that are too long.
        """
        if names == Names():
            return self._key
        key = self._picked.get(names)
        if key is None:
            if len(self._picked) >= _KEYS_KEPT:
                self._picked.clear()
            key = self._picked[names] = self._keys.picked(self._key, *names)
        return key

    def _cuts(self, grouping: Grouping, ends: Any) -> Iterator[tuple[Names, int, int]]:
        """Yield the cuts of a slice: the names, the first row, and the row after the last one."""
        start = 0
        for names, stop in grouping.groups:
            while start < stop:
                begin = int(ends[start - 1]) if start else 0
                fitting = int(np.searchsorted(ends, begin + self._cut.piece_bytes, "right"))
                cut = min(max(fitting, start + 1), start + self._cut.piece_count, stop)
                yield names, start, cut
                start = cut


def _accepted(futures: Sequence[SendFuture], pieces: Sequence[Piece], places: Sequence[Rows]) -> Iterator[ArrowPiece]:
    """Yield the pieces that were accepted, which are the first ones."""
    for future, piece, rows in zip(futures, pieces, places, strict=False):
        yield ArrowPiece(future, piece.logs, rows, len(piece.record))


def _shifted(rows: Any, by: int) -> Any:
    return range(rows.start + by, rows.stop + by) if isinstance(rows, range) else rows + by


def _rows(rows: Any, start: int) -> Rows:
    if not isinstance(rows, range) and int(rows[-1] - rows[0]) == len(rows) - 1:  # rows are in ascending order
        rows = range(int(rows[0]), int(rows[-1]) + 1)
    rows = _shifted(rows, start)
    return rows if isinstance(rows, range) else pa.array(rows, pa.int64())
