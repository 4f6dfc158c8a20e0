"""Cut the bytes of a file or an object into blocks of whole lines or events."""

from __future__ import annotations

from typing import NamedTuple

from ....wire.encodings import MARK, is_utf8, last_line_end, whole_characters
from ....wire.log_start import Logs, last_start, last_start_in
from .containers import ContainerLines
from .identity import HEAD_BYTES

#: Maximum bytes of one batch, except for a single longer line.
BLOCK_BYTES = 1 << 20
#: Maximum number of lines of one batch, roughly: an empty line's event takes a hundred times its bytes.
_MOST_LINES = 1 << 16


class Block(NamedTuple):
    """Whole lines of a file.

    :ivar data: the lines.
    :ivar start: the offset in the file of the lines, or of the hole before them.
    :ivar hole: number of skipped NUL bytes before the lines.
    """

    data: bytes
    start: int
    hole: int = 0

    @property
    def end(self) -> int:
        """The byte after the last one."""
        return self.start + self.hole + len(self.data)

    @property
    def raw(self) -> bytes:
        """The bytes of the file; a large hole is shortened."""
        return b"\0" * min(self.hole, HEAD_BYTES) + self.data if self.hole else self.data


class Rules(NamedTuple):
    """Rules that split a file into events, and decide when its last event is complete.

    :ivar logs: the rule by which multi-line events begin; None if each line is an event.
    :ivar max_line: maximum bytes of an event; a longer one is split.
    :ivar settle: seconds without a write after which a last line is complete.
    :ivar log_settle: seconds without a write after which a multi-line event is complete.
    :ivar containers: the rules of container logs, where several lines may be one event; None for other files.
    :ivar encoding: the files' encoding.
    :ivar delimiter: the ASCII character that ends a line.
    :ivar final: True if the files are complete: NUL bytes at their end are skipped.
    """

    logs: Logs | None
    max_line: int
    settle: float
    log_settle: float
    containers: ContainerLines | None = None
    encoding: str = "utf-8"
    delimiter: str = "\n"
    final: bool = False


class Cutter:
    """Finder of the ends of whole lines, or of whole events.

    :param encoding: the encoding of the bytes, with its byte order.
    :ivar line_end: the bytes that end a line.
    """

    def __init__(self, rules: Rules, encoding: str) -> None:
        self._rules, self._encoding, self._is_utf8 = rules, encoding, is_utf8(rules.encoding)
        self.line_end = rules.delimiter.encode(encoding)

    def cut(self, data: bytes, known: int, rested: tuple[bool, bool], *, first: bool) -> int:
        """Return the end of the complete lines or events; ``known`` if there are none.

        :param known: the offset in ``data`` of the first byte that was not put.
        :param rested: True if the last line, and True if the last multi-line event, counts as complete.
        :param first: True if the data begins the file, and may have a byte order mark.
        """
        logs, containers = self._rules.logs, self._rules.containers
        if logs is not None and not rested[1]:
            if self._is_utf8:
                return known + last_start(data[known:], logs.start, at_line=True)
            return known + last_start_in(data[known:], logs.start, self._encoding, first=first)
        cut = self._last_end(data, known)
        if containers is not None and cut and not rested[1]:
            return known + containers.whole_end(data[known:cut], self._rules.log_settle)
        if cut or not rested[0] or (data == MARK and first and not self._rules.final):
            return cut or known
        if self._is_utf8 or self._rules.final:
            return len(data)
        return whole_characters(data, known, self._encoding)

    def forced_cut(self, data: bytes, known: int) -> int:
        """Return where to split an event that is too long, or the end of the other stream's events of a container."""
        cut, containers = self._last_end(data, known), self._rules.containers
        if cut and containers is not None:
            return known + (containers.whole_end(data[known:cut], 0.0) or cut - known)
        cut = cut or whole_characters(data, known, self._encoding)
        return cut if cut > known else len(data)

    def few_lines(self, data: bytes, known: int, cut: int, *, first: bool) -> int:
        """Return the end of a block within the limit of lines, if lines or events end there."""
        while data.count(self._rules.delimiter.encode(), known, cut) > _MOST_LINES:
            half = self.cut(data[: known + (cut - known) // 2], known, (False, False), first=first)
            if half == known:
                break
            cut = half
        return cut

    def _last_end(self, data: bytes, known: int) -> int:
        """Return the byte after the last line end; 0 if there is none."""
        if len(self.line_end) == 1:
            return data.rfind(self.line_end, known) + 1
        return last_line_end(data, known, self.line_end)
