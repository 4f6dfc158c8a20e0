"""Decompress an object, and cut its bytes into blocks of lines."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from ....wire.compressed_heads import compression_of
from ....wire.decompressing import DAMAGE, decompressing
from ....wire.encodings import HOLE, in_order
from ..reading.cutting import BLOCK_BYTES, Block, Cutter, Rules
from .clients import UnreadableError
from .objects import ObjectBytes

#: Number of first bytes that show the compression.
_HEAD = 16


class PlainBytes:
    """Reader of an object's decompressed bytes. Each method raises :class:`UnreadableError` if they are damaged.

    :param start: the offset of the first byte to read.
    :ivar head: the first bytes, which may have a byte order mark.
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
    """Yield blocks of whole lines or events, to the end or to the damage.

    :param read: returns up to the given number of bytes; nothing at the end.
    :param head: the first bytes of the object.
    :param start: the offset of the first byte that ``read`` returns.
    :param stops: the other channels' offsets, where a block must end, sorted.
    :raises UnreadableError: ``read`` has raised it; all bytes before are yielded first.
    """
    damage: UnreadableError | None = None
    cutter, data, ended = Cutter(rules, in_order(rules.encoding, head)), b"", False
    while True:
        stop = next((each - start for each in stops if each > start), None)
        most = min(rules.max_line, stop or rules.max_line)
        cut, want = 0, min(BLOCK_BYTES, most)
        while cut == 0:
            while len(data) < want and not ended:
                more = b""
                try:
                    more = read(want - len(data))
                except UnreadableError as error:
                    damage = error
                data, ended = data + more, not more
            if not data and damage is not None:
                raise damage
            if not data:
                return
            part, first = data[:want], start == 0
            cut = len(part) if ended and part == data else cutter.cut(part, 0, (False, False), first=first)
            if cut == 0 and want == most:
                cut = want if most == stop else cutter.forced_cut(part, 0)
            want = min(2 * want, most)
        cut = cutter.few_lines(data, 0, cut, first=start == 0)
        yield Block(data[:cut], start)
        data, start = data[cut:], start + cut
