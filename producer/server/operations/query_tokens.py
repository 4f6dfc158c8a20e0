"""Tokens of keyword queries of GetLogs, and the split from SQL or SPL at ``|``.

A quotation mark after a backslash is an ordinary character, inside and outside quotation marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import ApiError

_LEXER = re.compile(
    r"""\s*(?:#?"((?:[^"\\]|\\.)*)"|(in\s*[\[(]\s*[^\s,\])]++[\s,]++[^\s\])]++\s*[\])]|in\s*\[|>=|<=|[():<>=])|((?:\\"|[^\s():"<>=])+))""",
    re.IGNORECASE,
)
# Operators of other languages, standing alone; taken for words, they would find hardly any log.
_FOREIGN = re.compile(r"!|&&|~|\^")
_PIPE = re.compile(r"""((?>(?:\\"|[^"|]|"(?:[^"\\]|\\.)*")*))\|(.*)""", re.DOTALL)
#: Words that combine conditions.
OPERATORS = {"and", "or", "not"}
#: Words reserved by LogHub: in quotation marks, or bound to a field, they are ordinary words.
RESERVED = {"sort", "asc", "desc", "avg", "sum", "min", "max", "limit"}
_COMPARISONS = {">", ">=", "<", "<=", "="}

#: The kind ("word", "quoted", "compare", "range", an operator, or the sign itself) and the text.
Token = tuple[str, str]


def split_query(text: str) -> tuple[str, str | None]:
    """Split a query at the first ``|`` outside quotation marks into keywords and the rest; None for no rest.

    :raises ApiError: ``ParameterInvalid``, the query contains ``||``, which means "or" in other languages.
    """
    match = _PIPE.fullmatch(text)
    if match is not None and match[2].startswith("|"):
        raise unreadable("'||' is not an operator: write or")
    return (text, None) if match is None else (match[1], match[2].strip())


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a query.

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
                f"{word!r} is not an operator here: use and, or, not, and < <= > >= = for numbers; put text with such a"
                " sign into quotation marks"
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
    """Return the refusal of an invalid query."""
    return ApiError("ParameterInvalid", f"the query cannot be read: {reason}")
