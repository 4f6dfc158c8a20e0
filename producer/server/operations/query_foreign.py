"""Refusal of other query languages' syntax, with LogHub's own syntax for the same.

LogHub takes such syntax for words, which hardly any log contains, and would answer nothing. A word in quotation marks
is always just a word.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .query_tokens import Token, unreadable

#: Takes the token before, or None, and a window of tokens; returns the advice, or None.
_Rule = Callable[[Token | None, list[Token]], str | None]

_WINDOW = 5
_NONE: Token = ("", "")
_NUMBER = re.compile(r"[-+]?\d[\w.:+-]*")
_TEXT_OPERATORS = {"like", "ilike", "rlike", "regexp", "matches", "contains", "startswith", "endswith"}
_MODIFIED = re.compile(r"[\w.*?-]*\w[~^]\d*(\.\d+)?")
_RANGE = "write 'key in [1 100]', with ( or ) for an exclusive bound"
_COMPARISONS = {
    "==": "write 'key = 3', or 'key: word' for text",
    "<>": "write 'not key = 3', or 'not key: word' for text",
}


def check_foreign(tokens: list[Token]) -> None:
    """Refuse syntax of another language.

    :raises ApiError: ``ParameterInvalid``, with the syntax to use.
    """
    _check_sql(tokens)
    for place in range(len(tokens)):
        window = [*tokens[place : place + _WINDOW], *[_NONE] * _WINDOW][:_WINDOW]
        before = tokens[place - 1] if place else None
        for rule in _RULES:
            advice = rule(before, window)
            if advice:
                raise unreadable(f"{advice}; put literal text into quotation marks")


def _check_sql(tokens: list[Token]) -> None:
    words = [text.lower() for kind, text in tokens if kind in ("word", "(")]
    if words[:1] == ["select"] and set(words[1:]) & {"from", "(", "*"}:
        raise unreadable("SQL must follow a '|': write '* | select …'")
    if words[:1] == ["where"] and len(tokens) > 2 and tokens[2][0] in (":", "compare", "range"):
        raise unreadable("a query is a condition itself: write it without 'where'")


def _between(_before: Token | None, window: list[Token]) -> str | None:
    low, _, high = window[1:4]
    kinds = [kind for kind, _ in window[:4]]
    if kinds[0] != "word" or window[0][1].lower() != "between" or kinds[2] != "and":
        return None
    values = all(kind == "quoted" or (kind == "word" and _NUMBER.fullmatch(text)) for kind, text in (low, high))
    return f"'between' is not an operator: {_RANGE}" if values else None


def _in_list(_before: Token | None, window: list[Token]) -> str | None:
    (kind, text), (following, _) = window[:2]
    if kind != "word" or text.lower() != "in" or following != "(":
        return None
    return f"'in' takes two numbers: {_RANGE}, and 'key: a or key: b' for several words"


def _bracket_range(before: Token | None, window: list[Token]) -> str | None:
    (kind, first), (_, second) = window[:2]
    if before is None or before[0] != ":" or kind != "word" or first[0] not in "[{":
        return None
    is_range = (
        second.lower() == "to"
        or re.fullmatch(r"[\[{][^,]+,[^,]+[\]}]", first)
        or (_NUMBER.fullmatch(first[1:]) and re.fullmatch(r"[-+.\d]+[\]}]", second))
    )
    return f"{first!r} is not the start of a range: {_RANGE}" if is_range else None


def _field_of_wildcards(before: Token | None, window: list[Token]) -> str | None:
    (kind, name), after, value = window[:3]
    if kind != "word" or after[0] != ":" or not set(name) & {"*", "?"} or (before and before[0] == ":"):
        return None
    if (name, value) == ("*", ("word", "*")):
        return "'*:*' is not a query: write '*' for all logs"
    return f"{name!r} is not a field: write a field's whole name, or only the word to search in all fields"


def _after_colon(before: Token | None, window: list[Token]) -> str | None:
    kind, sign = window[0]
    if before is None or before[0] != ":":
        return None
    if kind == "compare":
        return f"':' cannot precede {sign!r}: write 'key {sign} 3' for a number, 'key: word' for text"
    return "'(' cannot follow ':': write 'key: a or key: b'" if kind == "(" else None


def _no_comparison(_before: Token | None, window: list[Token]) -> str | None:
    (kind, text), (following, sign) = window[:2]
    if kind == "compare" and following == "compare":
        both = text + sign
        return f"{both!r} is not a comparison: {_COMPARISONS.get(both, 'there are < <= > >= =')}"
    if kind == "word" and text.endswith("!") and sign == "=" and following == "compare":
        return "'!=' is not a comparison: write 'not key = 3', or 'not key: word' for text"
    return None


def _word_with_sign(before: Token | None, window: list[Token]) -> str | None:
    kind, text = window[0]
    if kind != "word" or (before and before[0] in (":", "compare")) or not re.match(r"[-+!][^\W\d]", text):
        return None
    if text[0] == "+":
        return f"{text!r}: write words side by side to require all of them"
    return f"{text!r}: write 'not {text[1:]}' to exclude logs with it"


def _text_operator(before: Token | None, window: list[Token]) -> str | None:
    (kind, text), (following, value) = window[:2]
    if kind != "word" or text.lower() not in _TEXT_OPERATORS or before is None or before[0] not in ("word", "quoted"):
        return None
    if following != "quoted" and not (following == "word" and (value.startswith("'") or "%" in value)):
        return None
    return f"{text!r} is not an operator: write 'key: word', or 'key: begin*'"


def _exists(_before: Token | None, window: list[Token]) -> str | None:
    (kind, text), (following, _) = window[:2]
    is_meant = kind == "word" and text.lower() == "_exists_" and following == ":"
    return "'_exists_' is not an operator: write 'key: *'" if is_meant else None


def _modified(_before: Token | None, window: list[Token]) -> str | None:
    kind, text = window[0]
    if kind != "word" or not _MODIFIED.fullmatch(text):
        return None
    return f"{text!r}: '~' and '^' have no meaning after a word; write 'begin*' for a prefix"


_RULES: tuple[_Rule, ...] = (
    _between,
    _in_list,
    _bracket_range,
    _field_of_wildcards,
    _after_colon,
    _no_comparison,
    _word_with_sign,
    _text_operator,
    _exists,
    _modified,
)
