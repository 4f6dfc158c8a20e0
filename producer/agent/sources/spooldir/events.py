"""Conversion of a file's blocks into batches: decoded lines, split if they are too long, or one event a block."""

from __future__ import annotations

from collections.abc import Mapping

from ....wire.encodings import MARK, Converted, to_utf8
from ...events.batch import EventBatch, Position
from ..reading.batches import batch_of_lines
from .options import SpoolDirectoryOptions

_ERRORS = {"REPLACE": "replace", "IGNORE": "ignore", "FAIL": "strict", "KEEP": "surrogateescape"}


class EventMaker:
    """Converter of blocks into batches."""

    def __init__(self, options: SpoolDirectoryOptions) -> None:
        self._options = options
        self._errors = _ERRORS[options.decode_error_policy]
        self._keeps = options.is_utf8 and options.decode_error_policy == "KEEP"

    def lines(self, block: bytes, encoding: str, *, first: bool) -> Converted:
        """Convert whole lines to UTF-8.

        :param encoding: the encoding of the lines, with its byte order.
        :param first: True if the block begins the file, and may have a byte order mark.
        :raises UnicodeDecodeError: the lines cannot be decoded, and the policy is FAIL.
        """
        if self._errors == "replace":
            return to_utf8(block, encoding, first=first)
        if not self._keeps and not (block.isascii() and self._options.is_utf8):
            block = block.decode(encoding, self._errors).encode()
        return Converted(block.removeprefix(MARK) if first else block, 0)

    def batch(self, lines: bytes, headers: Mapping[str, str], position: Position) -> EventBatch:
        """Return the events of whole lines in UTF-8."""
        return self._cut(batch_of_lines(lines, self._options.delimiter, headers, position))

    def blob(self, block: bytes, headers: Mapping[str, str], position: Position) -> EventBatch:
        """Return one event."""
        return EventBatch.of_bodies([block], headers, {}, position)

    def _cut(self, batch: EventBatch) -> EventBatch:
        """Split lines that are longer than the limit."""
        limit = self._options.max_line_length
        if limit is None or all(len(body) <= limit for body in batch.bodies()):
            return batch
        parts = [part for body in batch.bodies() for part in _parts(body, limit)]
        return EventBatch.of_bodies(parts, batch.shared, {}, batch.position)


def _parts(body: bytes, limit: int) -> list[bytes]:
    text = body.decode(errors="surrogateescape")
    parts = [text[start : start + limit] for start in range(0, len(text), limit)] or [""]
    return [part.encode(errors="surrogateescape") for part in parts]
