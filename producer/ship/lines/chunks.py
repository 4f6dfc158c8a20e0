"""Lines in chunks that are the same however they are read: cut where a line begins behind a multiple of a size.

What an earlier attempt has cut is cut there again, so that each chunk can have a number that follows its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .line import Block, Line

#: The distance of cuts, bytes; about as much is a request.
CHUNK_BYTES = 1 << 20


class Chunk(NamedTuple):
    """What one request holds.

    :ivar lines: a block, or a piece of a long line.
    :ivar number: grows with the place in the file, from 1 on.
    """

    lines: Block | Line
    number: int

    def halves(self) -> tuple[Chunk, Chunk] | None:
        """Cut in two between lines; None if there is but one. The numbers follow the places, as before."""
        halves = self.lines.halves() if isinstance(self.lines, Block) else None
        if halves is None:
            return None
        return Chunk(halves[0], halves[1].offset), Chunk(halves[1], self.number)


def chunks_of(read: Iterable[Block | Line], size: int | None = None) -> Iterator[Chunk]:
    """Join what was read, and cut it again.

    :param read: blocks, and pieces of long lines, one behind the other.
    :param size: the distance of cuts, bytes; :data:`CHUNK_BYTES` if left out.
    """
    size = size or CHUNK_BYTES
    waiting: list[Block] = []
    place = 0  # behind the last piece of a long line
    for lines in read:
        if isinstance(lines, Line):
            yield from _joined(waiting)
            waiting = []
            begin = lines.offset if lines.part <= 1 else place
            # A piece without a byte has a place of its own all the same: that of its line end.
            place = begin + max(len(lines.data), 1)
            yield Chunk(lines, place)
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
