"""Divides lines into chunks that do not depend on how they were read.

A chunk begins with the first line after a multiple of a size. Each attempt makes the same chunks, so that each can have
a sequence number that follows its offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .line import Block, Line

#: The distance of chunk bounds, bytes; a request is about as large.
CHUNK_BYTES = 1 << 20


class Chunk(NamedTuple):
    """The lines of one request.

    :ivar lines: a block, or a piece of a long line.
    :ivar number: its sequence number, which grows with the offset in the file, from 1.
    """

    lines: Block | Line
    number: int

    def halves(self) -> tuple[Chunk, Chunk] | None:
        """Divide the chunk between two lines; None if it has one line. The numbers still follow the offsets."""
        halves = self.lines.halves() if isinstance(self.lines, Block) else None
        if halves is None:
            return None
        return Chunk(halves[0], halves[1].offset), Chunk(halves[1], self.number)


def chunks_of(read: Iterable[Block | Line], size: int | None = None) -> Iterator[Chunk]:
    """Join blocks, and divide them into chunks.

    :param read: blocks, and pieces of long lines, in the order of the file.
    :param size: the distance of chunk bounds, bytes; None for :data:`CHUNK_BYTES`.
    """
    size = size or CHUNK_BYTES
    waiting: list[Block] = []
    number = 0  # The byte after the last piece of a long line.
    for lines in read:
        if isinstance(lines, Line):
            yield from _joined(waiting)
            waiting = []
            begin = lines.offset if lines.part <= 1 else number
            # An empty piece gets the number of its line end.
            number = begin + max(len(lines.data), 1)
            yield Chunk(lines, number)
            continue
        rest: Block | None = lines
        while rest is not None:
            first = waiting[0].offset if waiting else rest.offset
            begun, rest = rest.cut_at((first // size + 1) * size)
            if begun is not None:
                waiting.append(begun)
            if rest is not None:
                yield from _joined(waiting)
                waiting = []
    yield from _joined(waiting)


def _joined(blocks: list[Block]) -> Iterator[Chunk]:
    if blocks:
        block = blocks[0].joined(blocks[1:]) if len(blocks) > 1 else blocks[0]
        yield Chunk(block, block.offset + len(block.data))
