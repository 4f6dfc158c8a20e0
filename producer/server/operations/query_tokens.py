"""Keyword queries of GetLogs, before they are understood: their tokens, and where they end.

A quotation mark behind a backslash is a sign like others, inside of quotation marks and outside of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ApiError

_LEXER = re.compile(
    r"""\s*(?:#?"((?:[^"\\]|\\.)*)"|(in\s*[\[(]\s*[^\s,\])]++[\s,]++[^\s\])]++\s*[\])]|in\s*\[|>=|<=|[():<>=])|((?:\\"|[^\s():"<>=])+))""",
    re.IGNORECASE,
)
# Operators of other languages, standing alone: as words they would hardly find anything, and say nothing.
_FOREIGN = re.compile(r"!|&&|~|\^")
_PIPE = re.compile(r"""((?:\\"|[^"|]|"(?:[^"\\]|\\.)*")*+)\|(.*)""", re.DOTALL)
#: The words that combine others.
OPERATORS = {"and", "or", "not"}
#: What the service keeps for itself: such a word is looked for in quotation marks, or in a field.
RESERVED = {"sort", "asc", "desc", "avg", "sum", "min", "max", "limit"}
_COMPARISONS = {">", ">=", "<", "<=", "="}

#: Its kind ("word", "quoted", "compare", "range", an operator, or the sign itself) and its text.
Token = tuple[str, str]


def split_query(text: str) -> tuple[str, str | None]:
    """The keywords of a query, and what follows the first ``|`` outside quotation marks; None without one.

    :raises ApiError: ``ParameterInvalid``, there are two of them together, which mean "or" in other languages.
    """
    match = _PIPE.fullmatch(text)
    if match is not None and match[2].startswith("|"):
        raise unreadable("'||' is no operator: write or")
    return (text, None) if match is None else (match[1], match[2].strip())


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a query.

    :raises ApiError: ``ParameterInvalid``, a quotation mark is not closed, or an operator is another language's.
    """
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _LEXER.match(text, place)
        if match is None:
            raise unreadable("a quotation mark is not closed")
        quoted, sign, word = match.groups()
        if quoted is not None:
            yield "quoted", re.sub(r"\\(.)", r"\1", quoted)
        elif sign:
            yield _sign_token(sign)
        elif _FOREIGN.fullmatch(word):
            raise unreadable(
                f"{word!r} is no operator here: use and, or, not, and < <= > >= = for numbers; put text of such a sign"
                " into quotation marks"
            )
        else:
            yield _word_token(word)
        place = match.end()


def _sign_token(sign: str) -> Token:
    if sign in _COMPARISONS:
        return "compare", sign
    return ("range", sign) if len(sign) > 1 else (sign, sign)


def _word_token(word: str) -> Token:
    word = word.replace('\\"', '"')
    return (word.lower(), word) if word.lower() in OPERATORS else ("word", word)


def unreadable(reason: str) -> ApiError:
    """The refusal of a query that cannot be read."""
    return ApiError("ParameterInvalid", f"the query cannot be read: {reason}")
