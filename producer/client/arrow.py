"""send_arrow: tables become pieces of about a batch, a slice at a time.

A slice of a megabyte or two is the unit: its memory is reserved, then it is encoded as a whole, cut into pieces where a
row ends, and accepted. So a table of any size goes through a producer of any size. Where columns pick the stream, the
records of a slice are put in the order of their streams before they are cut. How a batch is cut depends on its data
and the configuration, and on nothing else.

Nothing imports this module before ``send_arrow`` is called: it needs the extra ``arrow``.
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
from ..pipeline.admission import say_how_far
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.cut import CutRule
from ..pipeline.sender import Door
from ..runtime.clock import Clock
from ..wire.columnar import ColumnarEncoder, EncodedRows, Grouping, Names
from ..wire.text import moment_of
from .stream_keys import StreamKeys

#: Bytes that are encoded at once: fewer cost more for each, more no longer fit the processor's caches.
SLICE_BYTES = 2 * 1024 * 1024
# Of the memory no more than this part is reserved for one slice.
_PART_OF_MEMORY = 4
_MAX_SLICE_ROWS = 65_536
_KEYS_KEPT = 4096

Rows: TypeAlias = range | pa.Int64Array


@dataclass(frozen=True, slots=True)
class ArrowPiece:
    """Rows that were accepted together.

    :ivar future: of their result.
    :ivar logs: how many they are.
    :ivar rows: their positions in the batch: a ``range`` if they are consecutive, else an Arrow array.
    :ivar size: their bytes as encoded.
    """

    future: SendFuture
    logs: int
    rows: Rows
    size: int


@lru_cache(maxsize=64)
def encoder_of(schema: pa.Schema, options: tuple[tuple[str, str | None], ...]) -> ColumnarEncoder:
    """An encoder, which keeps what it has learned about lengths.

    :raises InvalidArgumentError: as :class:`ColumnarEncoder`.
    """
    return ColumnarEncoder(schema, **dict(options))


def batches_of(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the batches of whatever holds Arrow data.

    :raises InvalidArgumentError: it does not.
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
    """Sends batches of one schema to one stream, or to streams that differ from it by names.

    :param door: takes the pieces.
    :param keys: makes the keys of streams that columns pick.
    :param key: the stream.
    :param clock: gives logs without a time of their own theirs.
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
        """Send all batches; the futures of their pieces.

        :raises ProducerError: its ``accepted`` and ``accepted_logs`` say how far it came.
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
            say_how_far(error, futures, logs)
            raise
        return futures

    def pieces(self, batch: pa.RecordBatch, first_row: int = 0) -> Iterator[ArrowPiece]:
        """Send a batch; each piece is accepted when it is yielded, and perhaps those after it in its slice.

        :param first_row: what errors call the first row.
        :raises ProducerError: behind the pieces that were accepted.
        """
        self._encoder.check(batch)
        for start, rows, size in self._slices(batch):
            task = _Slice(self, rows, start, first_row, size)
            try:
                futures = self._door.accept_encoded(task, self._callback)
            except ProducerError as error:
                yield from task.pieces_of(cast("Sequence[SendFuture]", error.accepted))
                raise
            yield from task.pieces_of(futures)

    def _slices(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """Slices of about the right size, where each begins, and its size as estimated, bytes; none for a batch
        without rows.
        """
        rows = batch.num_rows
        size = self._encoder.estimate(batch) if rows else 0
        step = max(1, min(_MAX_SLICE_ROWS, rows * self._slice_bytes // max(1, size)))
        for start in range(0, rows, step):
            yield from self._halved(start, batch.slice(start, step))

    def _halved(self, start: int, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch, int]]:
        """A slice, cut in two until it is not much larger than the others."""
        count, size = rows.num_rows, self._encoder.estimate(rows)
        if count == 1 or size <= 2 * self._slice_bytes:
            yield start, rows, size
            return
        yield from self._halved(start, rows.slice(0, count // 2))
        yield from self._halved(start + count // 2, rows.slice(count // 2))

    def key_of(self, names: Names) -> StreamKey:
        """The stream that columns pick.

        :raises InvalidArgumentError: a wrong shard hash, names that are too long.
        """
        if names == Names():
            return self._key
        key = self._picked.get(names)
        if key is None:
            if len(self._picked) >= _KEYS_KEPT:
                self._picked.clear()
            key = self._picked[names] = self._keys.picked(self._key, *names)
        return key

    def encode(self, batch: pa.RecordBatch, rows: Sequence[int]) -> EncodedRows:
        """The records of rows, whose numbers for errors are given."""
        return self._encoder.encode(batch, moment_of(self._clock.time())[0], rows)

    def group(self, batch: pa.RecordBatch) -> Grouping:
        """See :meth:`ColumnarEncoder.group`."""
        return self._encoder.group(batch)

    def cuts(self, grouping: Grouping, ends: Any) -> Iterator[tuple[Names, int, int]]:
        """Where a slice is cut into pieces: the names, the first row, the row behind the last one."""
        start = 0
        for names, stop in grouping.groups:
            while start < stop:
                begin = int(ends[start - 1]) if start else 0
                fitting = int(np.searchsorted(ends, begin + self._cut.piece_bytes, "right"))
                cut = min(max(fitting, start + 1), start + self._cut.piece_count, stop)
                yield names, start, cut
                start = cut

    def check_size(self, piece: Piece) -> None:
        """See :meth:`Admission.check_size`."""
        self._door.check_size(piece)


class _Slice:
    """One slice on its way through the encoder.

    :param start: its first row's position in the batch.
    :param first_row: what errors call the batch's first row.
    :param estimate: its size once it is encoded, about, bytes.
    """

    def __init__(self, sender: ArrowSender, rows: pa.RecordBatch, start: int, first_row: int, estimate: int) -> None:
        self.estimate = estimate
        self._sender, self._batch, self._start, self._first_row = sender, rows, start, first_row
        self._sent: list[tuple[Rows, int, int]] = []

    def encode(self) -> list[Piece]:
        """The slice in pieces; all are checked.

        :raises InvalidArgumentError: a value that cannot be sent, a row that is too large; with the row.
        """
        grouping = self._sender.group(self._batch)
        first = self._start + self._first_row
        encoded = self._sender.encode(self._batch, range(first, first + self._batch.num_rows))
        if not isinstance(grouping.rows, range):
            encoded = encoded.in_order(grouping.rows)
        pieces = []
        for names, start, stop in self._sender.cuts(grouping, encoded.ends):
            record = encoded.piece(start, stop)
            pieces.append(self._piece(names, record, stop - start, first + int(grouping.rows[start])))
            self._sent.append((_rows(grouping.rows[start:stop], self._start), stop - start, len(record)))
        return pieces

    def _piece(self, names: Names, record: memoryview, logs: int, row: int) -> Piece:
        try:
            piece = Piece(self._sender.key_of(names), record, logs)
            self._sender.check_size(piece)
        except LogSizeTooLargeError as error:
            raise LogSizeTooLargeError(error.size, error.limit, f"row {row}: {error.what}") from error
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"row {row}: {error}") from error
        return piece

    def pieces_of(self, futures: Sequence[SendFuture]) -> Iterator[ArrowPiece]:
        """What was accepted."""
        for future, (rows, logs, size) in zip(futures, self._sent, strict=False):
            yield ArrowPiece(future, logs, rows, size)


def _shifted(rows: Any, by: int) -> Any:
    return range(rows.start + by, rows.stop + by) if isinstance(rows, range) else rows + by


def _rows(rows: Any, start: int) -> Rows:
    if not isinstance(rows, range) and int(rows[-1] - rows[0]) == len(rows) - 1:  # they ascend
        rows = range(int(rows[0]), int(rows[-1]) + 1)
    rows = _shifted(rows, start)
    return rows if isinstance(rows, range) else pa.array(rows, pa.int64())
