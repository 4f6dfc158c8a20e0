"""Blocks of a file as batches: lines as they lie, decoded, or cut; or the block as one event."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping

from ....wire.encodings import MARK
from ...events.batch import EventBatch, Position
from ..reading.reader import BLOCK_BYTES
from .options import SpoolDirectoryOptions

_ERRORS = {"REPLACE": "replace", "IGNORE": "ignore", "FAIL": "strict", "KEEP": "surrogateescape"}


class EventMaker:
    """See the module."""

    def __init__(self, options: SpoolDirectoryOptions) -> None:
        self._options = options
        self._errors = _ERRORS[options.decode_error_policy]
        self._keeps = options.is_utf8 and options.decode_error_policy == "KEEP"

    def lines(self, block: bytes, headers: Mapping[str, str], position: Position, *, first: bool) -> EventBatch:
        """The events of whole lines.

        :param first: the block begins the file, and may have a byte order mark.
        :raises UnicodeDecodeError: they are no text, and shall be.
        """
        if not self._keeps and not (block.isascii() and self._options.is_utf8):
            block = block.decode(self._options.input_charset, self._errors).encode()
        if first:
            block = block.removeprefix(MARK)
        return self._cut(EventBatch.of_lines(block, headers, position))

    def decoded(self, data: bytes, headers: Mapping[str, str], position: Position) -> Iterator[EventBatch]:
        """The events of a whole file; the last batch has the position.

        :raises UnicodeDecodeError: as :meth:`lines`.
        """
        text = codecs.decode(data, self._options.input_charset, self._errors).removeprefix("\ufeff").encode()
        start = 0
        while start < len(text):
            end = text.rfind(b"\n", start, start + BLOCK_BYTES) + 1 or text.find(b"\n", start) + 1 or len(text)
            batch = EventBatch.of_lines(text[start:end], headers, position if end == len(text) else None)
            yield self._cut(batch)
            start = end

    def blob(self, block: bytes, headers: Mapping[str, str], position: Position) -> EventBatch:
        """One event."""
        return EventBatch.of_bodies([block], headers, {}, position)

    @property
    def needs_whole_file(self) -> bool:
        """Whether line ends of this charset are more than one byte, so that files are decoded from their first one."""
        return "\n".encode(self._options.input_charset) != b"\n"

    def _cut(self, batch: EventBatch) -> EventBatch:
        """Lines that are longer than allowed, in parts."""
        limit = self._options.max_line_length
        if limit is None or all(len(body) <= limit for body in batch.bodies()):
            return batch
        parts = [part for body in batch.bodies() for part in _parts(body, limit)]
        return EventBatch.of_bodies(parts, batch.shared, {}, batch.position)


def _parts(body: bytes, limit: int) -> list[bytes]:
    text = body.decode(errors="surrogateescape")
    parts = [text[start : start + limit] for start in range(0, len(text), limit)] or [""]
    return [part.encode(errors="surrogateescape") for part in parts]
