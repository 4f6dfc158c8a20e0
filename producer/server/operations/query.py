"""Keyword queries of GetLogs: syntax, meaning, and matching of logs.

::

    query  = any { "or" any }
    any    = term { ["and"] term }               words side by side must all match
    term   = "not" term | "(" query ")" | "*" | word | key ":" word
             | key (">" | ">=" | "<" | "<=" | "=") number | key "in" ("[" | "(") number number ("]" | ")")
    key    = word | "__tag__" ":" word           ``source`` is ``__source__``, too
    word   = letters without spaces, or "quoted", or #"quoted"; * stands for any letters, ? for one

Text is split into tokens at spaces and punctuation, and compared without regard to case. A word of several tokens
matches the same tokens in sequence. Each text is split once for all words. A word that is not plain ASCII matches
anywhere in the text, because such text is not split at spaces alone.

``__topic__`` and ``__source__`` are keys, too. ``key: ""`` matches an empty text, and ``key: "/"`` a text that is only
``/``. ``a or b c`` is ``a or (b and c)``.

Syntax of other query languages is an error (``query_foreign``).

Source: the service's documentation, Query syntax. There numbers and JSON need an index. Here every text that is a
number is one, and JSON is text.

The file is long because the grammar, its parser and the matching are one definition of the language. It has no parser
library: Lucene's grammar, which kept packages read, is another language, and its syntax is refused here in words.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ...text.plural import counted
from ..limits import Limits
from .query_foreign import check_foreign
from .query_tokens import OPERATORS, RESERVED, Token, split_query, tokens, unreadable

_RANGE = re.compile(r"in\s*([\[(])\s*([^\s,]++)[\s,]++([^\s\])]++)\s*([\])])", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?", re.IGNORECASE)
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_SPACES = "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_DELIMITERS = ",'\";=()[]{}?@&<>/:" + _SPACES
_ASCII_DELIMITERS = str.maketrans(dict.fromkeys(filter(str.isascii, _DELIMITERS), "\0"))
_OTHER_DELIMITERS = [sign for sign in _DELIMITERS if not sign.isascii()]
_MAX_DEPTH = 50
_MAX_GAP = 100
_MAX_PARTS = 21
# Maximum number of characters of a word with wildcards: matching takes time for each of them.
_MAX_WILDCARD = 256


class _Text:
    """One text of a log, in the forms that words are compared with; each form is made on first use."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lower: str | None = None
        self._tokens: str | None = None

    @property
    def lower(self) -> str:
        """Return the text in lower case."""
        if self._lower is None:
            self._lower = self._text.lower()
        return self._lower

    @property
    def number(self) -> float | None:
        """Return the text as a number, or None."""
        try:
            return float(self._text)
        except ValueError:
            return None

    @property
    def tokens(self) -> str:
        """Return the tokens in lower case, each surrounded by zero characters."""
        if self._tokens is None:
            self._tokens = _tokens_of(self.lower)
        return self._tokens


# _Word: True if a text of a log contains the word. _Condition: True for the set of words found in a log.
_Word = Callable[[_Text], bool]
_Condition = Callable[[bytearray], bool]

# The only letters beyond ASCII whose lower case is or begins with an ASCII letter: i and k.
_FOLDED = ("\u0130".encode(), "\u212a".encode())
_FOLDED_TO = re.compile(b"[ik]")
_LETTERS = re.compile(rb"[a-z]+")


class _Encoded:
    """The bytes of a LogGroup. Their lower-case form is made on demand, since that takes longer than a scan."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._lower: bytes | None = None

    def may_have(self, needle: _Needle) -> bool:
        """Return True if a log of the LogGroup may contain this token."""
        if needle.caseless not in self._raw:
            return False
        if self._lower is None:
            self._lower = self._raw.lower()
        return needle.token in self._lower or (needle.folds and any(letter in self._raw for letter in _FOLDED))


@dataclass(frozen=True, slots=True)
class _Needle:
    """Bytes that a LogGroup must contain for one of its logs to contain a word.

    :ivar token: the token, in lower-case ASCII.
    :ivar caseless: its longest part without letters, which has one spelling only; may be empty.
    :ivar folds: True if letters beyond ASCII may replace some of its letters.
    """

    token: bytes
    caseless: bytes
    folds: bool

    @classmethod
    def of(cls, token: str) -> _Needle:
        """Return the needle of a token."""
        encoded = token.encode()
        return cls(encoded, max(_LETTERS.split(encoded), key=len), _FOLDED_TO.search(encoded) is not None)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a query.

    :ivar holds: returns True if the part holds for a log with these words.
    :ivar may_hold: returns True if the part may hold for a log of this LogGroup.
    """

    holds: _Condition
    may_hold: Callable[[_Encoded], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """A compiled query.

    :ivar words: the words to look for in texts.
    :ivar indexes: for each key, the indexes of the words that its texts may contain.
    :ivar anywhere: the indexes of the words that the texts of other keys may contain.
    :ivar part: the condition on the words found.
    :ivar matches_all: True if every log matches.
    """

    words: list[_Word]
    indexes: Mapping[str, list[int]]
    anywhere: list[int]
    part: _Part
    matches_all: bool = False

    def __call__(self, texts: Iterable[tuple[str, str]]) -> bool:
        """Return True if a log matches; ``texts`` are its searchable keys and texts.

        Each text is compared once, with all words not found before.
        """
        if self.matches_all:
            return True
        found = bytearray(len(self.words))
        for name, content in texts:
            indexes = self.indexes.get(name, self.anywhere)
            if indexes:
                self._look(_Text(content), indexes, found)
                if all(found):
                    break
        return self.part.holds(found)

    def _look(self, text: _Text, indexes: list[int], found: bytearray) -> None:
        for index in indexes:
            if not found[index] and self.words[index](text):
                found[index] = True

    def may_match(self, raw: bytes) -> bool:
        """Return False if no log of a LogGroup can match, judged from its encoded bytes without decoding."""
        return self.matches_all or self.part.may_hold(_Encoded(raw))


def compile_query(text: str, limits: Limits) -> Query:
    """Compile a query. An empty query and a lone ``*`` match all logs.

    :param text: the query; a ``|`` must not follow it.
    :raises ApiError: ``ParameterInvalid``, the query is invalid or too long.
    """
    if len(text) > limits.query_chars:
        raise unreadable(f"it has {counted(len(text), 'character')}: at most {limits.query_chars} are allowed")
    if split_query(text)[1] is not None:
        raise unreadable("this parameter takes keywords only, without '|'")
    found = list(tokens(text))
    check_foreign(found)
    parser = _Parser(found, limits.query_words)
    if parser.at_end or text.strip() == "*":
        return Query([], {}, [], _Part(lambda _found: True, lambda _raw: True), matches_all=True)
    part = parser.alternatives()
    if not parser.at_end:
        raise unreadable("')' has no matching '('")
    anywhere = [index for index, key in enumerate(parser.keys) if key is None]
    indexes = {
        key: [index for index, other in enumerate(parser.keys) if other in (None, key)]
        for key in parser.keys
        if key is not None
    }
    return Query(parser.words, indexes, anywhere, part)


class _Parser:
    """A parser of queries.

    :ivar words: the words parsed so far.
    :ivar keys: the key that each word is bound to, or None.
    """

    def __init__(self, tokens: list[Token], max_words: int) -> None:
        self.words: list[_Word] = []
        self.keys: list[str | None] = []
        self._tokens = tokens
        self._max_words = max_words
        self._place = 0
        self._depth = 0

    @property
    def at_end(self) -> bool:
        return self._place == len(self._tokens)

    def next(self) -> Token:
        if self.at_end:
            raise unreadable(f"it ends with {self._tokens[-1][1]!r}: a word must follow")
        self._place += 1
        return self._tokens[self._place - 1]

    def _sees(self, kind: str) -> bool:
        return not self.at_end and self._tokens[self._place][0] == kind

    def _skip(self, kind: str) -> bool:
        seen = self._sees(kind)
        self._place += seen
        return seen

    def alternatives(self) -> _Part:
        parts = [self._conjunction()]
        while self._skip("or"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else _joined(any, parts)

    def _conjunction(self) -> _Part:
        parts = [self._term()]
        while self._skip("and") or not (self.at_end or self._sees("or") or self._sees(")")):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else _joined(all, parts)

    def _term(self) -> _Part:
        kind, text = self.next()
        if kind in ("not", "("):
            return self._nested(kind)
        if kind in ("compare", "range"):
            raise unreadable(f"no field precedes {text!r}: write 'key > 5 and key < 10'")
        if kind not in ("word", "quoted"):
            raise unreadable(f"nothing precedes {text!r}: write a word or a field before it")
        key = self._tag() or text
        if self._skip(":"):
            return self._bound(*self._value(), key, is_source=(kind, text) == ("word", "source"))
        if self._sees("compare") or self._sees("range"):
            return self._word(self._number(), [], key)
        self._check_alone(kind, text)
        quoted = kind == "quoted"
        return self._word(_word(text, quoted=quoted), _needles(text, quoted=quoted))

    def _tag(self) -> str:
        """Return ``__tag__:name`` if that key and an operator come next, else an empty text."""
        before = ("word", "__tag__")
        after = self._tokens[self._place - 1 : self._place + 3]
        if len(after) < 4 or after[0] != before or after[1][0] != ":" or after[3][0] not in (":", "compare", "range"):
            return ""
        self._place += 2
        return f"__tag__:{after[2][1]}"

    def _bound(self, has: _Word, needles: list[_Needle], key: str, *, is_source: bool) -> _Part:
        part = self._word(has, needles, key)
        return _joined(any, [part, self._word(has, needles, "__source__")]) if is_source else part

    def _check_alone(self, kind: str, text: str) -> None:
        """Refuse a word without a key that has a special meaning in LogHub."""
        if kind == "quoted":
            if not text:
                raise unreadable('an empty text needs a field: write key: ""')
            return
        after = self._tokens[self._place][1] if self._sees("word") else ""
        if text.lower() in RESERVED or (text.lower() in ("group", "order") and after.lower() == "by"):
            raise unreadable(f"{text!r} is reserved: put it into quotation marks to search for it")
        if text.lower() == "in" and _NUMBER.fullmatch(after):
            raise unreadable("'in' needs a range: write 'key in [1 100]', with ( or ) for an exclusive bound")

    def _word(self, word: _Word, needles: list[_Needle], key: str | None = None) -> _Part:
        if len(self.words) == self._max_words:
            raise unreadable(f"it has more than {counted(self._max_words, 'word')}: use fewer")
        self.words.append(word)
        self.keys.append(key)
        index = len(self.words) - 1
        return _Part(lambda found: bool(found[index]), lambda group: all(map(group.may_have, needles)))

    def _nested(self, kind: str) -> _Part:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise unreadable(f"it is nested deeper than {_MAX_DEPTH} levels: simplify it")
        inner = self._term() if kind == "not" else self.alternatives()
        if kind == "(" and not self._skip(")"):
            raise unreadable("'(' is not closed")
        self._depth -= 1
        return inner if kind == "(" else _Part(lambda found: not inner.holds(found), lambda _group: True)

    def _number(self) -> _Word:
        kind, sign = self.next()
        if kind == "range":
            return _in_range(sign)
        compare, bound = _COMPARISONS[sign], _parse_bound(self.next()[1])
        return lambda text: text.number is not None and compare(text.number, bound)

    def _value(self) -> tuple[_Word, list[_Needle]]:
        kind, text = self.next()
        if kind not in ("word", "quoted", *OPERATORS):
            raise unreadable(f"{text!r} is not expected after ':'")
        quoted = kind == "quoted"
        if quoted and _tokens_of(text) == "\0":
            wanted = text.lower()
            return lambda found: found.lower == wanted, []
        return _word(text, quoted=quoted), _needles(text, quoted=quoted)


def _joined(how: Callable[[Iterable[bool]], bool], parts: list[_Part]) -> _Part:
    return _Part(
        lambda found: how(part.holds(found) for part in parts),
        lambda group: how(part.may_hold(group) for part in parts),
    )


def _needles(word: str, *, quoted: bool) -> list[_Needle]:
    """Return the bytes that a LogGroup must contain for one of its logs to contain ``word``."""
    if not word.isascii() or (not quoted and ("*" in word or "?" in word)):
        return []
    return [_Needle.of(token) for token in _tokens_of(word.lower()).split("\0") if token]


def _in_range(sign: str) -> _Word:
    match = _RANGE.fullmatch(sign)
    if match is None:
        raise unreadable(f"{sign!r} is not a range: write 'key in [1 100]', with ( or ) for an exclusive bound")
    if "," in match[2] or set(match[0]) & {"'", '"'}:
        raise unreadable(f"{sign!r} is not a range of two numbers: write 'key: a or key: b' for several words")
    low, high = _parse_bound(match[2]), _parse_bound(match[3])
    above = operator.ge if match[1] == "[" else operator.gt
    below = operator.le if match[4] == "]" else operator.lt
    return lambda text: text.number is not None and above(text.number, low) and below(text.number, high)


def _parse_bound(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise unreadable(
            f"{text[:64]!r} is not a number: < <= > >= = compare numbers; write 'key: word' for text in a field, and"
            " put text with such a sign into quotation marks"
        )
    return float(text)


def _word(word: str, *, quoted: bool) -> _Word:
    if not quoted and set(word) == {"*"}:
        return lambda _text: True
    wanted = word.lower()
    if not quoted and ("*" in wanted or "?" in wanted):
        return _wildcard(wanted)
    if not wanted.isascii():
        return lambda text: wanted in text.lower
    needle = _tokens_of(wanted)
    if needle == "\0":  # only punctuation, which no token contains
        return lambda _text: False
    return lambda text: needle in text.tokens


def _wildcard(word: str) -> _Word:
    """Compile a word with wildcards: ``*`` stands for any letters of a token, ``?`` for one.

    Each part after a ``*`` is matched where it first occurs and nowhere else (atomic groups). That finds every match,
    and no text causes backtracking.
    """
    if len(word) > _MAX_WILDCARD:
        raise unreadable(f"a word with * or ? has {len(word)} characters: at most {_MAX_WILDCARD} are allowed")
    parts = [_letters(part, word.isascii()) for part in re.split(r"\*+", word)]
    if len(parts) > _MAX_PARTS:
        raise unreadable(f"a word has more than {_MAX_PARTS - 1} '*': use fewer")
    if not word.isascii():
        # Such a text has no tokens and words match anywhere, so the gap to the next part is bounded.
        gaps = "".join(f"(?>[^\\s]{{0,{_MAX_GAP}}}?{part})" for part in parts[1:])
        return _matches(re.compile(parts[0] + gaps), lambda text: text.lower)
    parts[0] = f"\0{parts[0]}"
    parts[-1] += "\0"
    gaps = "".join(f"(?>[^\\0]*?{part})" for part in parts[1:])
    return _matches(re.compile(re.sub("\0+", "\0", parts[0]) + re.sub("\0+", "\0", gaps)), lambda text: text.tokens)


def _letters(part: str, ascii_only: bool) -> str:
    """Return a pattern for a part of a word without ``*``; punctuation in it separates tokens."""
    if not ascii_only:
        return "[^\\s]".join(map(re.escape, part.split("?")))
    return "[^\\0]".join(re.escape(piece.translate(_ASCII_DELIMITERS)) for piece in part.split("?"))


def _matches(pattern: re.Pattern[str], form: Callable[[_Text], str]) -> _Word:
    return lambda text: pattern.search(form(text)) is not None


def _tokens_of(text: str) -> str:
    # In a few steps over the whole text: splitting megabytes piece by piece blocks the thread for a second.
    text = f"\0{text}\0".translate(_ASCII_DELIMITERS)
    if not text.isascii():
        for sign in _OTHER_DELIMITERS:
            text = text.replace(sign, "\0")
    while "\0\0" in text:
        text = text.replace("\0\0", "\0")
    return text
