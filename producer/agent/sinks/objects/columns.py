"""Columns of a table of Parquet files; a later file may add and widen columns.

A column's name has only letters, digits and underscores, since many readers refuse or quote others. Names that differ
only in case, or only in other characters, share the column of the first one: Spark and DuckDB ignore the case.

* ``body`` is the body as text. With ``body = "json"`` it is empty for JSON objects, whose fields are columns.
* A header is text, except the header with the time.
* A field of a JSON body has the declared type, or else that of its values.
* ``headers`` is a map of the headers without a column, if the option ``columns`` is set.
* ``_rest`` is a JSON object of the values that fit no column.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..places import short
from .kinds import INFERRED, widened

REST, BODY, HEADERS = "_rest", "body", "headers"
_UNSAFE = re.compile(r"\W")
#: Maximum bytes of a column's name.
_MOST_NAME = 128


def safe_name(name: str) -> str:
    """Return the name of a column for a header or a field."""
    return short(_UNSAFE.sub("_", name), _MOST_NAME).replace("~", "_") or "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRules:
    """Options of a table's columns.

    :ivar body_is_json: True to make columns of the fields of JSON bodies.
    :ivar declared: types of columns by name.
    :ivar headers: headers that become columns; empty for all.
    :ivar time_header: the header that becomes a time.
    :ivar most: number of columns at which fields and headers add no more.
    :ivar widens: True to widen a column for values of another type.
    """

    body_is_json: bool = False
    declared: Mapping[str, str] = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    time_header: str = "timestamp"
    most: int = 1000
    widens: bool = True

    def first(self) -> dict[str, str]:
        """Return the types of the columns that each file has."""
        named = [(BODY, "string"), *((name, "string") for name in self.headers)]
        named += [(HEADERS, "map")] if self.headers else []
        spelled: dict[str, str] = {}
        found: dict[str, str] = {}
        for name, kind in [*named, *self.declared.items()]:
            column = safe_name(name)
            found[spelled.setdefault(column.lower(), column)] = kind
        return found

    def fixed(self) -> dict[str, str]:
        """Return the types that do not depend on values, of columns that a file may have."""
        return {safe_name(self.time_header): "timestamp", BODY: "string", REST: "string"} | self.first()


class Columns:
    """The columns of one table, which values extend.

    :param known: types of the columns of the previous file.
    :ivar kinds: types by name, in the order of the file.
    """

    def __init__(self, rules: ColumnRules, known: Mapping[str, str]) -> None:
        self._most, self._widens = rules.most, rules.widens
        self._fixed = {name.lower(): kind for name, kind in rules.fixed().items()}
        self.kinds = rules.first()
        self._names = {name.lower(): name for name in self.kinds}
        for name, kind in known.items():
            if name.lower() not in self._names and (kind in INFERRED or self._fixed.get(name.lower()) == kind):
                self._names[name.lower()] = name
                self.kinds[name] = kind

    def __len__(self) -> int:
        return len(self._names)

    def of(self, name: str) -> str | None:
        """Return the column of a header or a field; None if the name is reserved, or there are too many columns."""
        column = safe_name(name)
        folded = column.lower()
        if folded == REST or self._fixed.get(folded) == "map":
            return None
        if folded not in self._names:
            if len(self._names) >= self._most and folded not in self._fixed:
                return None
            self._names[folded] = column
        return self._names[folded]

    def see(self, column: str, kind: str) -> str:
        """Add values of a type to a column; return the column's type, which may be wider."""
        former = self.kinds.get(column, kind)
        kind = self._fixed.get(column.lower()) or (widened(former, kind) if self._widens else former)
        self.kinds[column] = kind
        return kind
