"""Formats floating point as ``repr`` does: the shortest text that reads back equal.

Arrow finds the same digits, and formats numbers from 0.0001 to ten thousand million in the same way. Whole numbers lack
their ``.0``, which is appended. Python formats all other numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .values import Numbers, as_binary, text_kind, valid_of

_LEAST_ALIKE = 1e-4
_MOST_ALIKE = 1e10
# Longer than any float.
_LONGEST = 32


def texts_of_floats(array: pa.Array) -> pa.Array:
    """Return the texts of an array of any floating point type, in the precision of ``float``."""
    valid = valid_of(array)
    numbers = _doubles(array)
    texts = pa.array(numbers, mask=None if valid is None else ~valid).cast(text_kind(len(array), _LONGEST))
    texts = as_binary(texts)
    magnitudes = np.abs(numbers)
    alike = (magnitudes < _MOST_ALIKE) & ((magnitudes >= _LEAST_ALIKE) | (magnitudes == 0))
    texts = _with_points(texts, alike & (np.trunc(numbers) == numbers))
    return texts if alike.all() else _by_python(texts, numbers, ~alike)


def _doubles(array: pa.Array) -> Numbers:
    """Return the numbers; 0 for null."""
    numbers: Numbers = array.to_numpy(zero_copy_only=False).astype(np.float64)
    if array.null_count:
        numbers[array.is_null().to_numpy(zero_copy_only=False)] = 0.0
    return numbers


def _with_points(texts: pa.Array, whole: Numbers) -> pa.Array:
    """Append ``.0`` to whole numbers."""
    if not whole.any():
        return texts
    endings = pa.array([b"", b".0"], texts.type).take(pa.array(whole.astype(np.int8)))
    return pc.binary_join_element_wise(texts, endings, pa.scalar(b"", texts.type))


def _by_python(texts: pa.Array, numbers: Numbers, where: Numbers) -> pa.Array:
    written = [repr(number).encode() for number in numbers[where].tolist()]
    return pc.replace_with_mask(texts, pa.array(where), pa.array(written, texts.type))
