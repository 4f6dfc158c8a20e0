"""Conversion of the blocks of a file or an object into batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ....wire.encodings import MARK, Converted, in_order, is_utf8, to_utf8
from ....wire.log_start import SEEN_BYTES, Logs
from ...events.batch import EventBatch, Position
from .containers import ContainerLines
from .cutting import Block

BYTE_OFFSET_HEADER = "byteoffset"


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Converter of blocks into batches.

    :ivar logs: the rule by which multi-line events begin; None if each line is an event.
    :ivar byte_offset: True to add each event's byte offset in the file.
    :ivar containers: the rules of container logs; None for other files.
    :ivar delimiter: the end of a line.
    """

    logs: Logs | None
    byte_offset: bool = False
    containers: ContainerLines | None = None
    delimiter: str = "\n"

    def batch(self, block: Block, data: bytes, headers: Mapping[str, str], name: str, place: str = "") -> EventBatch:
        """Return the events of a block.

        :param data: the lines in UTF-8 (:func:`text_of`).
        :param place: the file's path.
        """
        position = Position(name, block.end, place)
        if self.containers is not None:
            return self.containers.batch(data, headers, position)
        if self.logs is None:
            batch = batch_of_lines(data, self.delimiter, headers, position)
            starts = _starts_of_lines(batch) if self.byte_offset else []
        else:
            starts = list(_starts(data, self.logs))
            ends = [*starts[1:], len(data)]
            bodies = [_without_end(data[start:end]) for start, end in zip(starts, ends, strict=True)]
            batch = EventBatch.of_bodies(bodies, headers, position=position)
        if self.byte_offset:
            first = block.end - len(data)
            batch = batch.with_column(BYTE_OFFSET_HEADER, [str(first + start) for start in starts])
        return batch

    def sample(self, data: bytes, encoding: str) -> EventBatch:
        """Return the events of a file's content, without headers that its path decides."""
        block = Block(data, 0)
        return self.batch(block, text_of(block, in_order(encoding, data)).data, {}, "sample")


def batch_of_lines(data: bytes, delimiter: str, headers: Mapping[str, str], position: Position) -> EventBatch:
    """Return the events of whole lines in UTF-8; the last line may lack its end."""
    if delimiter == "\n":
        return EventBatch.of_lines(data, headers, position)
    end = delimiter.encode()
    bodies = data.removesuffix(end).split(end) if data else []
    return EventBatch.of_bodies(bodies, headers, position=position)


def text_of(block: Block, encoding: str) -> Converted:
    """Return the lines of a block in UTF-8, without the file's byte order mark.

    :param encoding: the file's encoding, with its byte order.
    """
    if not is_utf8(encoding):
        return to_utf8(block.data, encoding, first=block.start == 0)
    return Converted(block.data.removeprefix(MARK) if block.start == block.hole == 0 else block.data, 0)


def _starts_of_lines(batch: EventBatch) -> list[int]:
    if batch.ends is None:
        return batch.offsets()
    return [start + number for number, start in enumerate(batch.offsets())]


def _starts(data: bytes, logs: Logs) -> Iterator[int]:
    """Yield the start of each multi-line event; the first byte of a block is always one."""
    start = 0
    for line in data.split(b"\n"):
        if start == 0 or (start < len(data) and logs.start.match(line[:SEEN_BYTES].removesuffix(b"\r"))):
            yield start
        start += len(line) + 1


def _without_end(body: bytes) -> bytes:
    return body.removesuffix(b"\n").removesuffix(b"\r")
