"""Columns of plain numbers, parsed by Arrow at once: several times faster than one by one, with the same values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# So few digits fit into 64 bits.
_WHOLE = r"^-?[0-9]{1,18}$"
_DECIMAL = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"


def plain_numbers(texts: Any, kind: Any) -> Any:
    """The numbers that ``texts`` are; None if one is not plainly written or out of range, or if they are no numbers.

    :param texts: an array of text; null stays null.
    :param kind: the Arrow type wanted.
    """
    if pa.types.is_integer(kind):
        pattern, first = _WHOLE, pa.int64()
    elif pa.types.is_floating(kind):
        pattern, first = _DECIMAL, pa.float64()
    else:
        return None
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        return None
    try:
        numbers = texts.cast(first)
        # A float of 32 bits is rounded twice, as Python would do it.
        return numbers.cast(kind, safe=first != pa.float64())
    except pa.ArrowInvalid:
        return None
