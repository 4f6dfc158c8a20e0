"""Keyword queries of GetLogs: what they mean, and whether a log matches.

::

    query  = any { "or" any }
    any    = term { ["and"] term }               words side by side must all match
    term   = "not" term | "(" query ")" | "*" | word | key ":" word
    word   = letters without spaces, or "quoted"; a trailing * matches any ending

Text is cut into tokens at spaces and punctuation, and compared without regard to case; a word that holds several
tokens matches where they follow one another. Where a word is not plain ASCII, it matches anywhere in the text, because
such text is not cut at spaces alone. ``__topic__`` and ``__source__`` can be named as keys. ``a or b c`` is ``a or (b
and c)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from ..errors import ApiError
from ..store.log_groups import StoredLog

Matcher = Callable[[StoredLog], bool]

_LEXER = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([():])|([^\s():"]+))')
_DELIMITERS = re.compile(r"[\s,'\";=()\[\]{}?@&<>/:]+")
_OPERATORS = {"and", "or", "not"}
_MAX_DEPTH = 50


def compile_query(text: str) -> Matcher:
    """The function that tells whether a log matches ``text``; an empty query matches all.

    :raises ApiError: ``ParameterInvalid``, the query cannot be read (SQL after ``|`` is not supported).
    """
    if "|" in text:
        raise ApiError("ParameterInvalid", "SQL after '|' is not supported by this server: use keywords")
    parser = _Parser(_tokens(text))
    if parser.at_end:
        return lambda _log: True
    matcher = parser.alternatives()
    if not parser.at_end:
        raise _unreadable(f"{parser.next()[1]!r} is not expected")
    return matcher


_Token = tuple[str, str]  # its kind ("word", "quoted", or the sign itself) and its text


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    text = text.rstrip()
    while place < len(text):
        match = _LEXER.match(text, place)
        if match is None:
            raise _unreadable("a quotation mark is not closed")
        quoted, sign, word = match.groups()
        if quoted is not None:
            tokens.append(("quoted", re.sub(r"\\(.)", r"\1", quoted)))
        else:
            tokens.append((sign, sign) if sign else _word_token(word))
        place = match.end()
    return tokens


def _word_token(word: str) -> _Token:
    return (word.lower(), word) if word.lower() in _OPERATORS else ("word", word)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    @property
    def at_end(self) -> bool:
        return self._place == len(self._tokens)

    def next(self) -> _Token:
        if self.at_end:
            raise _unreadable("it ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _sees(self, kind: str) -> bool:
        return not self.at_end and self._tokens[self._place][0] == kind

    def _skip(self, kind: str) -> bool:
        seen = self._sees(kind)
        self._place += seen
        return seen

    def alternatives(self) -> Matcher:
        matchers = [self._conjunction()]
        while self._skip("or"):
            matchers.append(self._conjunction())
        return lambda log: any(matches(log) for matches in matchers)

    def _conjunction(self) -> Matcher:
        matchers = [self._term()]
        while self._skip("and") or not (self.at_end or self._sees("or") or self._sees(")")):
            matchers.append(self._term())
        return lambda log: all(matches(log) for matches in matchers)

    def _term(self) -> Matcher:
        kind, text = self.next()
        if kind in ("not", "("):
            return self._nested(kind)
        if kind not in ("word", "quoted"):
            raise _unreadable(f"{text!r} is not expected")
        if self._skip(":"):
            return _match_key(text, self._value())
        return _match_anywhere(text, quoted=kind == "quoted")

    def _nested(self, kind: str) -> Matcher:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _unreadable(f"it is nested deeper than {_MAX_DEPTH} levels")
        inner = self._term() if kind == "not" else self.alternatives()
        if kind == "(" and not self._skip(")"):
            raise _unreadable("a parenthesis is not closed")
        self._depth -= 1
        return inner if kind == "(" else lambda log: not inner(log)

    def _value(self) -> Callable[[str], bool]:
        kind, text = self.next()
        if kind in ("(", ")", ":"):
            raise _unreadable(f"{text!r} is not expected after ':'")
        return _match_text(text, quoted=kind == "quoted")


def _match_key(key: str, matches: Callable[[str], bool]) -> Matcher:
    return lambda log: any(matches(text) for name, text in _texts(log) if name == key)


def _match_anywhere(word: str, *, quoted: bool) -> Matcher:
    matches = _match_text(word, quoted=quoted)
    return lambda log: any(matches(text) for _, text in _texts(log))


def _texts(log: StoredLog) -> Iterable[tuple[str, str]]:
    yield "__topic__", log.topic
    yield "__source__", log.source
    for key, text in log.tags.items():
        yield f"__tag__:{key}", text
    for key, value in log.contents:
        yield key, value if isinstance(value, str) else value.decode(errors="replace")


def _match_text(word: str, *, quoted: bool) -> Callable[[str], bool]:
    if not quoted and set(word) == {"*"}:
        return lambda _text: True
    prefix = not quoted and word.endswith("*")
    wanted = word.rstrip("*").lower() if prefix else word.lower()
    if not wanted.isascii():
        return lambda text: wanted in text.lower()
    return _match_tokens(_split(wanted), prefix=prefix)


def _match_tokens(wanted: list[str], *, prefix: bool) -> Callable[[str], bool]:
    needle = "\0" + "\0".join(wanted) + ("" if prefix else "\0")
    return lambda text: needle in "\0" + "\0".join(_split(text.lower())) + "\0"


def _split(text: str) -> list[str]:
    return [token for token in _DELIMITERS.split(text) if token]


def _unreadable(reason: str) -> ApiError:
    return ApiError("ParameterInvalid", f"the query cannot be read: {reason}")
