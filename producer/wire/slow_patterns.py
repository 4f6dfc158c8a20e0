"""Patterns that may take for ever: a repetition in a repetition, of which one text is an instance in very many ways.

Python's ``re`` tries all of these where a line does not match, and nothing else runs in the process meanwhile. What is
found is the usual kind: ``(a+)+``, ``(\\w+\\s*)*``, ``(.*,)*``. What is made of parts that exclude each other, such as
``(?:[^,]*,)*``, is not, nor are possessive repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from .regex_internals import codes, parser

_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)


def slow_note(pattern: re.Pattern[str] | re.Pattern[bytes], stands: str) -> str | None:
    """What to say of a pattern that has such a repetition.

    :param stands: what stands still while it is tried.
    """
    if not _any_slow(parser.parse(pattern.pattern, pattern.flags)):
        return None
    return (
        f"a repetition in a repetition, such as (a+)+, may take for ever on one line, and {stands} stands still"
        " meanwhile: write it without one, or possessive, (?:a++)+"
    )


def _any_slow(items: Any) -> bool:
    return any(_is_slow(code, argument) for code, argument in items)


def _is_slow(code: Any, argument: Any) -> bool:
    if code in _REPEATS and argument[1] is codes.MAXREPEAT and any(map(_may_be_one_repeat, _branches(argument[2]))):
        return True
    return any(_any_slow(inside) for inside in _insides(argument))


def _may_be_one_repeat(items: Any) -> bool:
    """Whether what is repeated may come down to a repetition alone, or has one that takes anything."""
    open_ended = [argument for code, argument in items if code in _REPEATS and argument[1] is codes.MAXREPEAT]
    if any(argument[2][0][0] is codes.ANY for argument in open_ended if len(argument[2])):
        return True
    needed = [code for code, argument in items if not (code in _REPEATS and argument[0] == 0)]
    return bool(open_ended) and (not needed or (len(needed) == 1 and needed[0] in _REPEATS and _needs_one(items)))


def _needs_one(items: Any) -> bool:
    """Whether the only part that must be there is a repetition without end."""
    return any(code in _REPEATS and argument[0] > 0 and argument[1] is codes.MAXREPEAT for code, argument in items)


def _branches(items: Any) -> list[Any]:
    """What a repetition repeats: without the groups around it, and each alternative."""
    if len(items) == 1:
        code, argument = items[0]
        if code is codes.SUBPATTERN:
            return _branches(argument[3])
        if code is codes.BRANCH:
            return [found for branch in argument[1] for found in _branches(branch)]
    return [items]


def _insides(argument: Any) -> Iterable[Any]:
    """The patterns in an item, wherever it has them."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _insides(each)
