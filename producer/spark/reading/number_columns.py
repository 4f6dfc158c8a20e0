"""Parse columns of plain numbers by Arrow: several times faster than one by one, with the same values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# So many digits fit into 64 bits.
_WHOLE = r"^-?[0-9]{1,18}$"
_DECIMAL = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"


def plain_numbers(texts: Any, kind: Any) -> Any:
    """Parse texts into numbers; return None if one is not a plain number in range, or the type is not numeric.

    :param texts: an array of text; null stays null.
    :param kind: the Arrow type of the result.
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
        # A float of 32 bits is rounded twice, as in Python.
        return numbers.cast(kind, safe=first != pa.float64())
    except pa.ArrowInvalid:
        return None
