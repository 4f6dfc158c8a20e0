"""The parser ``delimited``: CSV, TSV and the like (:mod:`producer.wire.delimited`).

The columns have the names that the user gives, or those in the first line of each file, which then is no record. Two
columns of one name are told apart by underscores, and one without a name is called ``_``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ....wire.delimited import fields_parser, values_parser
from ...errors import InputError
from ..names import MAX_NAME_BYTES, free_name, sendable

#: What a person may write for a tab.
TABS = ("tab", "\\t")
_MARK = '"'
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class Values:
    """How lines are divided.

    :ivar delimiter: one ASCII character.
    :ivar names: of the columns, such as records can have; none if they are not known, so that no line is parsed.
    """

    delimiter: str = ","
    names: tuple[str, ...] = ()


def delimited_parser(values: Values) -> Callable[[str], dict[str, str] | None]:
    """A parser for lines that have a value for each column."""
    return fields_parser(values.delimiter, values.names)


def checked_delimiter(given: str) -> str:
    """The delimiter that a person means.

    :raises InputError: it is not one ASCII character, or one that divides or quotes lines.
    """
    delimiter = "\t" if given in TABS else given
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in f"{_MARK}\r\n":
        raise InputError(
            f"--delimiter must be one ASCII character such as ; or tab, no quote or line end, got {given!r}"
        )
    return delimiter


def column_names(given: Iterable[str | None]) -> tuple[str, ...] | None:
    """Names that a record can have, one for each column; None if one is longer than LogHub takes."""
    taken: dict[str, str] = {}
    for name in given:
        free = free_name(sendable(name or ""), taken)
        if len(free.encode()) > MAX_NAME_BYTES:
            return None
        taken[free] = ""
    return tuple(taken)


def header_names(line: bytes, delimiter: str) -> tuple[str, ...]:
    """The names of the columns that a first line tells; none if it tells none."""
    text = line.decode(errors="backslashreplace").removeprefix(_BYTE_ORDER_MARK)
    values = values_parser(delimiter, None)(text)
    return () if values is None else column_names(values) or ()
