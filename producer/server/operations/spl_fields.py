"""What the operators of SPL share: names of fields, the parts of a list, and a LogGroup that was changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..errors import ApiError
from ..store.log_groups import StoredLogGroup
from .sql_text import folded, tokens_of

#: What the names of this module's own columns and tables begin with: no query names a field of such a name.
OWN = "spl "
#: What the names begin with that all logs of a LogGroup share.
OF_THE_GROUP = ("__topic__", "__source__", "__tag__:")
_NAME = re.compile(r'\s*("[^"]+"|[^\W\d]\w*)\s*', re.DOTALL)


def split(tokens: list[str], sign: str) -> Iterator[list[str]]:
    """The parts between the signs that stand alone and outside of all parentheses: ``||`` is none."""
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
    """The parts of a list."""
    return ["".join(part) for part in split(tokens_of(text), ",")]


def name_of(text: str) -> str:
    """The name of a field.

    :raises ApiError: ``ParameterInvalid``, it is none.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        raise unreadable(f'{text.strip()[:64]!r} is no name of a field: write one of other signs in "quotation marks"')
    name = match[1].strip('"')
    if folded(name).startswith(OWN):
        raise unreadable(f"{name[:64]!r}: fields whose names begin with {OWN!r} cannot be named")
    return name


def changed_group(group: StoredLogGroup, raw: bytes, count: int) -> StoredLogGroup:
    """The LogGroup with other logs in it."""
    return replace(group, raw=raw, count=count)


def unreadable(reason: str) -> ApiError:
    """The refusal of a query that cannot be read."""
    return ApiError("ParameterInvalid", f"the SPL cannot be read: {reason}")
