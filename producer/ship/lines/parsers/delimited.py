"""The parser ``delimited``: CSV, TSV and the like (:mod:`producer.wire.delimited`).

The user names the columns, or the first line of each file does; that line is then not a record. Underscores distinguish
columns of the same name, and a column without a name is called ``_``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....wire.delimited import values_parser
from ...errors import InputError
from ..names import MAX_NAME_BYTES, free_name, sendable

#: The names of a tab on the command line.
TABS = ("tab", "\\t")
_MARK = '"'
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Values:
    """The columns and the delimiter of lines.

    :ivar delimiter: one ASCII character.
    :ivar names: the sendable names of the columns; empty if they are unknown, so that no line is parsed.
    """

    delimiter: str = ","
    names: tuple[str, ...] = ()


def checked_delimiter(given: str) -> str:
    """Return the delimiter that the user means.

    :raises InputError: it is not one ASCII character, or it is a quote or a line end.
    """
    delimiter = "\t" if given in TABS else given
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in f"{_MARK}\r\n":
        raise InputError(
            f"--delimiter {given!r} must be one ASCII character, such as ; or tab, but no quote or line end"
        )
    return delimiter


def column_names(given: Iterable[str | None]) -> tuple[str, ...] | None:
    """Return sendable names of the columns; None if one is longer than LogHub accepts."""
    taken: dict[str, str] = {}
    for name in given:
        free = free_name(sendable(name or ""), taken)
        if len(free.encode()) > MAX_NAME_BYTES:
            return None
        taken[free] = ""
    return tuple(taken)


def header_names(line: bytes, delimiter: str) -> tuple[str, ...]:
    """Return the names of the columns in a first line; empty if they cannot be read."""
    text = line.decode(errors="backslashreplace").removeprefix(_BYTE_ORDER_MARK)
    values = values_parser(delimiter, None)(text)
    return () if values is None else column_names(values) or ()
