"""Formats values that only Python can: lists, structs and maps as JSON, unions, extensions with own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from ...model.errors import InvalidArgumentError
from ..text import text_of
from .values import UnsendableError, binary_of

_Convert = Callable[[Any], Any]


def texts_of_objects(array: pa.Array) -> pa.Array:
    """Return the texts of the values of ``to_pylist``, with maps as dictionaries."""
    convert = _converter(array.type)
    texts: list[bytes | None] = []
    for position, value in enumerate(_objects(array)):
        try:
            texts.append(None if value is None else _bytes_of(value if convert is None else convert(value)))
        except InvalidArgumentError as error:
            raise UnsendableError(position, str(error).removeprefix("field '': ")) from error
        except TypeError as error:  # The key of a map is not hashable.
            raise UnsendableError(position, f"cannot become JSON: {error}") from error
    return binary_of(texts)


def _bytes_of(value: object) -> bytes | None:
    text = text_of(value, "")
    return text if text is None or isinstance(text, bytes) else text.encode()


def _objects(array: pa.Array) -> list[Any]:
    """Return the values as Python objects.

    :raises UnsendableError: Python cannot express a value, such as a date after the year 9999.
    """
    try:
        return list(array.to_pylist())
    except (ValueError, OverflowError, TypeError):
        for position, value in enumerate(array):
            try:
                value.as_py()
            except (ValueError, OverflowError, TypeError) as error:
                raise UnsendableError(position, f"Python cannot express it: {error}") from error
        raise


def _converter(kind: pa.DataType) -> _Convert | None:
    """Return a function that converts the maps in a value from pairs to dictionaries; None if it has none."""
    if kinds.is_dictionary(kind):
        return _converter(kind.value_type)
    if kinds.is_map(kind):
        return _map_converter(kind)
    if kinds.is_struct(kind):
        return _struct_converter(kind)
    if kinds.is_nested(kind) and not kinds.is_union(kind):
        inner = _converter(kind.value_type)
        return inner and (lambda values: [None if value is None else inner(value) for value in values])
    return None


def _map_converter(kind: pa.DataType) -> _Convert:
    inner = _converter(kind.item_type)
    if inner is None:
        return dict
    return lambda pairs: {key: None if value is None else inner(value) for key, value in pairs}


def _struct_converter(kind: pa.DataType) -> _Convert | None:
    fields = {kind.field(n).name: _converter(kind.field(n).type) for n in range(kind.num_fields)}
    inner = {name: convert for name, convert in fields.items() if convert is not None}
    if not inner:
        return None
    return lambda values: {
        name: value if value is None or name not in inner else inner[name](value) for name, value in values.items()
    }
