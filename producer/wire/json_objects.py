"""Lines that are JSON objects, taken apart by compiled code: the top-level keys are columns.

Only the plain objects are taken: no key twice in an object, numbers as Python writes them, no escapes in keys, only
those that Python would write in values that are objects or lists, and no surrogate pairs. Strings come without their
escapes, objects and lists without white space. Every other line is left to a parser of single lines, which finds what
this one would; so there is no pure twin but that parser.

Example: the line ``{"a": "x", "b": 1.5, "c": null, "d": [1, 2]}`` is ``a`` ``x``, ``b`` ``1.5`` and ``d`` ``[1,2]``;
``{"b": 1.50}`` is left alone.
"""

from __future__ import annotations

from typing import NamedTuple

from .text_column import TextColumn


class ObjectLines(NamedTuple):
    """What some lines hold.

    :ivar known: a byte a line: 1 if it is a plain object, else 0.
    :ivar columns: by their keys, in the order in which these came.
    """

    known: bytes
    columns: dict[str, TextColumn]
