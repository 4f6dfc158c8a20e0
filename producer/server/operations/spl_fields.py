"""Helpers of SPL's operators: names of fields, parts of a list, and changed LogGroups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..errors import ApiError
from ..store.log_groups import StoredLogGroup
from .sql_text import folded, tokens_of

#: Prefix of this module's own columns and tables: queries cannot name fields with it.
OWN = "spl "
#: Prefixes of the fields that all logs of a LogGroup share.
SHARED_PREFIXES = ("__topic__", "__source__", "__tag__:")
_NAME = re.compile(r'\s*("[^"]+"|[^\W\d]\w*)\s*', re.DOTALL)


def split(tokens: list[str], sign: str) -> Iterator[list[str]]:
    """Yield the parts between single signs outside all parentheses; ``||`` is not such a sign."""
    part, depth = list[str](), 0
    for place, token in enumerate(tokens):
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if (
            token == sign
            and depth == 0
            and "||"
            not in (
                "".join(tokens[max(place - 1, 0) : place + 1]),
                "".join(tokens[place : place + 2]),
            )
        ):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def split_text(text: str) -> list[str]:
    """Return the parts of a list."""
    return ["".join(part) for part in split(tokens_of(text), ",")]


def name_of(text: str) -> str:
    """Return the name of a field.

    :raises ApiError: ``ParameterInvalid``, the text is not a name.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise unreadable(f'{text.strip()[:64]!r} is not a field name: put other names into "quotation marks"')
    name = match[1].strip('"')
    if folded(name).startswith(OWN):
        raise unreadable(f"field {name[:64]!r} cannot be used: names that begin with {OWN!r} are reserved")
    return name


def changed_group(group: StoredLogGroup, raw: bytes, count: int) -> StoredLogGroup:
    """Return the LogGroup with other logs."""
    return replace(group, raw=raw, count=count)


def unreadable(reason: str) -> ApiError:
    """Return the refusal of an invalid pipeline."""
    return ApiError("ParameterInvalid", f"the SPL cannot be read: {reason}")
