"""Assigns columns to their roles: checks the options against a schema."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as kinds

from ...model.errors import InvalidArgumentError
from .fields import ContentsColumn, FieldColumn
from .texts import Render, renderer_of, sendable
from .time_fields import is_time

_MOST_NAMES_SHOWN = 20
_TIME = (
    "a timestamp with a time zone, or an integer of seconds since 1970; a timestamp without a zone is "
    "ambiguous: add its zone"
)
_TEXT = "text: string, large_string, string_view, or a dictionary of one of these"


@dataclass(frozen=True, slots=True)
class Columns:
    """The roles of the columns of a schema, by position.

    :ivar time: the column of the times of the logs; None if there is none.
    :ivar picking: the columns of topic, source and shard hash.
    :ivar fields: the other columns, in order; a column of contents is the last.
    """

    time: int | None
    picking: tuple[int | None, int | None, int | None]
    fields: Sequence[tuple[int, FieldColumn | ContentsColumn]]


def columns_of(schema: pa.Schema, options: Mapping[str, str | None]) -> Columns:
    """Return the roles of the columns of ``schema``.

    :param options: ``time_column``, ``topic_column``, ``source_column``, ``shard_hash_column`` and ``contents_column``.
    :raises InvalidArgumentError: a column does not exist, exists twice, or has an invalid type; or another column has a
        type that cannot be sent.
    """
    found = {option: _position(schema, option, name) for option, name in options.items()}
    for option, position in found.items():
        if position is not None:
            applies, words = _ALLOWED[option]
            if not applies(schema.field(position).type):
                raise InvalidArgumentError(f"{option}: {_described(schema, position)}, but must be {words}")
    special = {position for position in found.values() if position is not None}
    fields: list[tuple[int, FieldColumn | ContentsColumn]] = [
        (position, FieldColumn(schema.field(position).name, _renderer(schema, position)))
        for position in range(len(schema))
        if position not in special and not kinds.is_null(schema.field(position).type)
    ]
    contents = found["contents_column"]
    if contents is not None:
        fields.append((contents, _contents(schema, contents)))
    return Columns(
        found["time_column"], (found["topic_column"], found["source_column"], found["shard_hash_column"]), fields
    )


def _position(schema: pa.Schema, option: str, name: str | None) -> int | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise InvalidArgumentError(f"{option}: must be None or the name of a column, got {name!r}")
    positions = schema.get_all_field_indices(name)
    if len(positions) > 1:
        raise InvalidArgumentError(f"{option}: there are {len(positions)} columns named {name!r}")
    if not positions:
        raise InvalidArgumentError(f"{option}: there is no column {name!r}; {_near(name, schema.names)}")
    return int(positions[0])


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names)
    if near:
        return f"similar: {', '.join(map(repr, near))}"
    shown = ", ".join(map(repr, names[:_MOST_NAMES_SHOWN])) or "none"
    return f"the columns: {shown}{', …' if len(names) > _MOST_NAMES_SHOWN else ''}"


def _renderer(schema: pa.Schema, position: int) -> Render:
    kind = schema.field(position).type
    if not sendable(kind):
        raise InvalidArgumentError(
            f"{_described(schema, position)}, which has no text: cast it to a number or to text, or leave it out"
        )
    return renderer_of(kind)


def _contents(schema: pa.Schema, position: int) -> ContentsColumn:
    kind = schema.field(position).type
    if not sendable(kind.item_type):
        raise InvalidArgumentError(
            f"contents_column: {_described(schema, position)}, whose values have no text: cast them to text"
        )
    return ContentsColumn(renderer_of(kind.key_type), renderer_of(kind.item_type))


def _described(schema: pa.Schema, position: int) -> str:
    field = schema.field(position)
    return f"column {field.name!r} is {field.type}"


def _is_text(kind: pa.DataType) -> bool:
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_contents(kind: pa.DataType) -> bool:
    return bool(kinds.is_map(kind)) and _is_text(kind.key_type)


_ALLOWED: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "time_column": (is_time, _TIME),
    "topic_column": (_is_text, _TEXT),
    "source_column": (_is_text, _TEXT),
    "shard_hash_column": (_is_text, _TEXT),
    "contents_column": (_is_contents, "a map with text as its keys"),
}
