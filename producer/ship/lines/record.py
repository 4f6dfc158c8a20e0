r"""Makes the fields of one LogHub record from a line.

===================  ==================================================================================================
``content``          the line as text; bytes that are not UTF-8 appear as ``\xNN``
``content_base64``   only if the line is not valid UTF-8: its exact bytes, base64
``__file_offset__``  with ``--file-offset``, and on pieces of a long line: the offset of the line in the file, bytes; in
                     a compressed file, of the decompressed bytes
``line_part``        only on pieces of a line longer than the limit: 1, 2, …; joined in order they are the line
(parsed fields)      the fields that the parser found
===================  ==================================================================================================

The tags of its batch name the file (:mod:`producer.ship.sending`). The names of parsed fields follow :mod:`.names`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from .line import Line
from .names import sendable_fields

if TYPE_CHECKING:
    from .parsers import Parser


class Record(NamedTuple):
    """The fields of a line, without its offset.

    :ivar content: the line as text.
    :ivar exact: the exact bytes of the line in base64; None if the text has all of them.
    :ivar found: the fields of the parser, in order, under names that can be sent.
    :ivar parsed: True if the parser recognised the line.
    """

    content: str
    exact: str | None
    found: dict[str, str]
    parsed: bool

    @property
    def size(self) -> int:
        """Size of names and values in UTF-8, bytes."""
        texts = (self.content, self.exact or "", *self.found, *self.found.values())
        return sum(len(text.encode()) for text in texts)

    def fields(self, line: Line, *, offset: bool) -> dict[str, str]:
        """Return all fields of the record.

        :param line: the line of this record.
        :param offset: True to add the offset of the line.
        """
        fields = {"content": self.content}
        if self.exact is not None:
            fields["content_base64"] = self.exact
        if offset or line.part:
            fields["__file_offset__"] = str(line.offset)
        if line.part:
            fields["line_part"] = str(line.part)
        return fields | self.found

    def as_text(self) -> Record:
        """Return the record without the fields of the parser."""
        return Record(self.content, self.exact, {}, parsed=False)


def to_record(line: Line, parser: Parser) -> Record:
    """Return the record of ``line``; it has only text if the parser does not recognise the line."""
    content, exact = _decode(line.data)
    # A piece of a line is not parsed, as it would yield wrong fields.
    found = None if line.part else parser(content)
    if not found:
        return Record(content, exact, {}, found is not None)
    fields = sendable_fields(found)
    return Record(content, exact, fields or {}, fields is not None)


def content_bytes(fields: dict[str, str]) -> bytes:
    """Return the exact bytes of the line (or piece) of a record."""
    exact = fields.get("content_base64")
    return fields["content"].encode() if exact is None else base64.b64decode(exact)


def _decode(data: bytes) -> tuple[str, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode(errors="backslashreplace"), base64.b64encode(data).decode()
