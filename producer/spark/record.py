r"""A line becomes the fields of one LogHub record.

===================  ==================================================================================================
``content``          the line as text; bytes that are not UTF-8 appear as ``\xNN``
``content_base64``   only if the line is not valid UTF-8: its exact bytes, base64
``file_path``        the file it came from; bytes of its name that are not UTF-8 appear as ``\xNN``
``file_offset``      where the line begins in the file, bytes; in a compressed file, of the decompressed bytes
``line_part``        only on pieces of a line longer than the limit: 1, 2, …; joined in order they are the line
(parsed fields)      what the parser found
===================  ==================================================================================================

``(file_path, file_offset, line_part)`` is thus the identity of a record: a second copy, sent because a task ran twice,
has the same.

A parsed field whose name one of these or LogHub itself claims (``__time__``, ``__source__``, ``__topic__``,
``__tag__:…``) gets an underscore (after its name; before it for tags); one without a name is called ``_``.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .lines import Line

if TYPE_CHECKING:
    from .parsers import Parser

#: The names that this module gives, and those that LogHub claims for itself.
RESERVED_FIELDS = frozenset(
    {"content", "content_base64", "file_path", "file_offset", "line_part"}
    | {"__time__", "__time_ns_part__", "__source__", "__topic__", "__partition_time__"}
    | {"_extract_others_", "__extract_others__"}
)
_RESERVED_PREFIX = "__tag__:"

#: LogHub's longest field name, bytes. A line with a longer one is shipped as text.
MAX_NAME_BYTES = 128


class Record(NamedTuple):
    """What is sent for a line.

    :ivar fields: the record's fields, in order.
    :ivar parsed: the parser knew the line.
    """

    fields: dict[str, str]
    parsed: bool


def to_record(line: Line, file_path: str, parser: Parser) -> Record:
    """The record for ``line``; one that the parser does not know consists of the fields of this module alone."""
    content, exact = _decode(line.data)
    # A piece of a line is not a line: parsing it would find fields that are not there.
    found = None if line.part else parser(content)
    fields = {"content": content}
    if exact is not None:
        fields["content_base64"] = exact
    fields["file_path"] = file_path
    fields["file_offset"] = str(line.offset)
    if line.part:
        fields["line_part"] = str(line.part)
    parsed = _add(fields, found) if found else found is not None
    return Record(fields, parsed)


def as_text(fields: dict[str, str]) -> dict[str, str]:
    """The record without what a parser found."""
    return {name: value for name, value in fields.items() if name in RESERVED_FIELDS}


def content_bytes(fields: dict[str, str]) -> bytes:
    """The exact bytes of the line (or piece) that a record was made of."""
    exact = fields.get("content_base64")
    return fields["content"].encode() if exact is None else base64.b64decode(exact)


def _decode(data: bytes) -> tuple[str, str | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return data.decode(errors="backslashreplace"), base64.b64encode(data).decode()


def _add(fields: dict[str, str], found: dict[str, str]) -> bool:
    """Add what the parser found; nothing of it, and False, if a name is longer than LogHub takes."""
    # Nearly every line of a file has the same names, and ASCII text in all fields.
    if all(map(_is_plain, found)) and "".join(found.values()).isascii():
        fields.update(found)
        return True
    named: dict[str, str] = {}
    for name, value in found.items():
        free = _free_name(_sendable(name), named)
        if len(free.encode()) > MAX_NAME_BYTES:
            return False
        named[free] = _sendable(value)
    fields.update(named)
    return True


@lru_cache(maxsize=4096)
def _is_plain(name: str) -> bool:
    """Whether a name can be sent as it is."""
    return name.isascii() and len(name) <= MAX_NAME_BYTES and _free_name(name, {}) == name


def _free_name(name: str, taken: dict[str, str]) -> str:
    if name.startswith(_RESERVED_PREFIX):
        name = f"_{name}"
    while not name or name in RESERVED_FIELDS or name in taken:
        name += "_"
    return name


def _sendable(text: str) -> str:
    # JSON can spell half of a surrogate pair ("\ud800"), which no UTF-8 can carry.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
