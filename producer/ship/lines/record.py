r"""A line becomes the fields of one LogHub record.

===================  ==================================================================================================
``content``          the line as text; bytes that are not UTF-8 appear as ``\xNN``
``content_base64``   only if the line is not valid UTF-8: its exact bytes, base64
``__file_offset__``  where asked for, and on pieces of a long line: where the line begins in the file, bytes; in a
                     compressed file, of the decompressed bytes
``line_part``        only on pieces of a line longer than the limit: 1, 2, …; joined in order they are the line
(parsed fields)      what the parser found
===================  ==================================================================================================

The file that it came from is in the tags of its batch (:mod:`producer.ship.sending`); :mod:`.names` says which names
parsed fields may have.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple

from .line import Line
from .names import sendable_fields

if TYPE_CHECKING:
    from .parsers import Parser


class Record(NamedTuple):
    """What is sent for a line, besides its place.

    :ivar content: the line as text.
    :ivar exact: the line's exact bytes in base64, if the text does not tell them.
    :ivar found: the parser's fields, in order, under names that are free.
    :ivar parsed: the parser knew the line.
    """

    content: str
    exact: str | None
    found: dict[str, str]
    parsed: bool

    @property
    def size(self) -> int:
        """Its bytes as UTF-8."""
        texts = (self.content, self.exact or "", *self.found, *self.found.values())
        return sum(len(text.encode()) for text in texts)

    def fields(self, line: Line, *, offset: bool) -> dict[str, str]:
        """All fields of the record.

        :param line: what it was made of.
        :param offset: whether the line's place was asked for.
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
        """The record without what a parser found."""
        return Record(self.content, self.exact, {}, parsed=False)


def to_record(line: Line, parser: Parser) -> Record:
    """The record for ``line``; one that the parser does not know has no fields of a parser."""
    content, exact = _decode(line.data)
    # A piece of a line is not a line: parsing it would find fields that are not there.
    found = None if line.part else parser(content)
    if not found:
        return Record(content, exact, {}, found is not None)
    fields = sendable_fields(found)
    return Record(content, exact, fields or {}, fields is not None)


def content_bytes(fields: dict[str, str]) -> bytes:
    """The exact bytes of the line (or piece) that a record was made of."""
    exact = fields.get("content_base64")
    return fields["content"].encode() if exact is None else base64.b64decode(exact)


def _decode(data: bytes) -> tuple[str, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode(errors="backslashreplace"), base64.b64encode(data).decode()
