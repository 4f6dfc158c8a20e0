"""Cut the plain bytes of an object into blocks of lines."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from ....wire.compressed_heads import compression_of
from ....wire.decompressing import DAMAGE, decompressing
from ....wire.encodings import HOLE, in_order
from ..reading.cutting import BLOCK_BYTES, Block, Cutter, Rules
from .clients import UnreadableError
from .objects import ObjectBytes

#: First bytes that tell a compression.
_HEAD = 16


class PlainBytes:
    """Reader of an object's plain bytes, from a position on.

    :param start: the first byte to read, of the plain bytes.
    :ivar head: the first bytes of the object.
    :raises UnreadableError: the object is damaged; by each method.
    """

    def __init__(self, stream: ObjectBytes, start: int) -> None:
        self._place = stream.place
        head = stream.peek(_HEAD)
        self._compression = compression_of(head)
        self._file: io.BufferedIOBase = stream
        self._ahead = b""
        if self._compression is None:
            self.head = head[: len(HOLE)]
            stream.skip_to(start)
        else:
            self._file = decompressing(stream, self._compression)
            self.head = self._ahead = self.read(len(HOLE))
            self._skip(start)

    def read(self, size: int) -> bytes:
        """Return the next bytes; nothing at the end."""
        if self._ahead:
            data, self._ahead = self._ahead[:size], self._ahead[size:]
            return data
        try:
            return self._file.read1(size)
        except DAMAGE as error:
            raise UnreadableError(f"{self._place}: damaged or incomplete {self._compression} data: {error}") from error

    def _skip(self, size: int) -> None:
        while size > 0 and (data := self.read(min(size, BLOCK_BYTES))):
            size -= len(data)


def blocks_of(
    read: Callable[[int], bytes], head: bytes, rules: Rules, start: int, stops: Sequence[int]
) -> Iterator[Block]:
    """Yield the blocks of lines, or of events, to the end.

    :param read: returns up to so many of the next bytes; nothing at the end.
    :param head: the first bytes of all.
    :param start: the position of the first of them.
    :param stops: positions of other channels, where a block has to end, sorted.
    """
    cutter, data, ended, stops = Cutter(rules, in_order(rules.encoding, head)), b"", False, [*stops]
    while True:
        while stops and stops[0] <= start:
            del stops[0]
        stop = stops[0] - start if stops else None
        cut, want = 0, min(BLOCK_BYTES, rules.max_line, stop or BLOCK_BYTES)
        while cut == 0:
            while len(data) < want and not ended:
                more = read(want - len(data))
                data, ended = data + more, not more
            if not data:
                return
            part, first = data[:want], start == 0
            cut = len(part) if ended and part == data else cutter.cut(part, 0, (False, False), first=first)
            if cut == 0 and want == stop:
                cut = len(part)
            elif cut == 0 and want == rules.max_line:
                cut = cutter.forced_cut(part, 0)
            cut = cutter.few_lines(part, 0, cut, first=first)
            want = min(2 * want, rules.max_line, stop or rules.max_line)
        yield Block(data[:cut], start)
        data, start = data[cut:], start + cut
