"""SQL of a query before it is run: what of the service's dialect is rewritten, and which fields it needs.

``FROM log`` may be left out: it is put where it belongs. ``LIMIT 20, 10`` becomes ``LIMIT 10 OFFSET 20``; without a
limit there are 100 rows, as in the service. Whatever stands in quotation marks or parentheses is left alone.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import ApiError

DEFAULT_ROWS = 100
_MAX_DEPTH = 16

# What is not closed ends with the text: no text is looked through again and again.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*+(?:'|\Z)|"(?:[^"]|"")*+(?:"|\Z)|[eE]'(?:[^'\\]|''|\\.)*+(?:'|\Z)|\$\$.*?(?:\$\$|\Z)"""
    r"""|--[^\n]*|/\*.*?(?:\*/|\Z)|\w+|\s+|.""",
    re.DOTALL,
)
_NAME_PART = re.compile(r"[\w.-]+")
_MAX_NAME_PARTS = 128
_WORD = re.compile(r"\w+")
_BEHIND_FROM = {
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "union",
    "intersect",
    "except",
    "window",
    "qualify",
}
#: First words of the operators of SPL.
_OF_SPL = {"where", "extend", "project", "parse", "limit", "sort", "expand", "stats"}
_MYSQL_LIMIT = re.compile(r"(?<!\d)(\d++)(\s*+),(\s*+)(\d++)")
_ALL_FIELDS = re.compile(r"(?:\bselect|\bdistinct|\ball|,|\.)\s*\*|\bcolumns\s*\(|\blog\s*\)", re.IGNORECASE)

_FOLDING = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def folded(name: str) -> str:
    """A field's name in the one case that the database takes names for: of letters beyond ASCII it knows no other."""
    return name.lower() if name.isascii() else name.translate(_FOLDING)


@dataclass(frozen=True, slots=True)
class SqlText:
    """A statement that can be run.

    :ivar text: the statement.
    :ivar has_limit: whether it says itself how many rows it wants.
    :ivar words: its words as :func:`folded`, names among them.
    :ivar wants_all: whether it may want every field there is.
    """

    text: str
    has_limit: bool
    words: frozenset[str]
    wants_all: bool

    def wants(self, field: str) -> bool:
        """Whether it may want that field."""
        return self.wants_all or field.lower().replace('"', '""') in self.text.lower()


def read_sql(text: str) -> SqlText:
    """The statement in ``text``.

    :raises ApiError: ``ParameterInvalid``, it is no SELECT.
    """
    tokens = tokens_of(text.strip().rstrip(";"))
    words = frozenset(folded(token).strip('"') for token in tokens if _WORD.fullmatch(token) or token.startswith('"'))
    first = first_word(tokens)
    if first not in ("select", "with"):
        spl = "; operators of SPL are for PullLogs, or session 'mode=scan'" if first in _OF_SPL else ""
        said = f"{first[:64]!r} after '|' is not known: use SELECT, WITH or with_pack_meta{spl}"
        raise ApiError("ParameterInvalid", said)
    check_nesting(tokens)
    outer = dict(_outer_words(tokens))
    if "from" not in outer:
        behind = [place for word, place in outer.items() if word in _BEHIND_FROM]
        tokens.insert(min(behind, default=len(tokens)), " FROM log ")
    statement = "".join(tokens)
    if "limit" in outer:
        statement = _with_offset(statement)
    return SqlText(statement, "limit" in outer, words, _ALL_FIELDS.search(text) is not None)


def tables_in(text: str, known: Iterable[str]) -> tuple[str, list[str]]:
    """Which of the ``known`` logstores a statement names behind FROM, JOIN or a comma; and the statement with their
    names in quotation marks, which it may be without: ``FROM app-log``.
    """
    tokens, names = _TOKEN.findall(text), {name.lower(): name for name in known}
    found, said, before = dict[str, None](), list[str](), ""
    while tokens:
        size = _name_size(tokens, names) if before in ("from", "join", ",") else 0
        if size:
            name = names["".join(tokens[:size]).lower().strip('"')]
            found[name] = None
            # Behind a comma it may be a field, or begin what only looks like a name.
            said += tokens[:size] if before == "," and size > 1 else [f'"{name}"']
        else:
            said.append(tokens[0])
        last = tokens[max(size, 1) - 1].lower()
        before = before if last.isspace() else last
        del tokens[: max(size, 1)]
    return "".join(said), list(found)


def _name_size(tokens: list[str], names: Mapping[str, str]) -> int:
    """Of how many tokens the longest of the names is that they begin with; 0 for none."""
    if tokens[0].startswith('"'):
        return int(tokens[0].lower().strip('"') in names)
    run = itertools.takewhile(_NAME_PART.fullmatch, tokens[:_MAX_NAME_PARTS])
    joined = list(itertools.accumulate(part.lower() for part in run))
    return max((size for size, name in enumerate(joined, 1) if name in names), default=0)


def where_of(text: str) -> str:
    """The condition of a SELECT, without what stands in quotation marks or parentheses; empty where another SELECT
    makes it doubtful which rows it is for.
    """
    tokens = tokens_of(text)
    lower = [part.lower() for part in tokens]
    if lower.count("select") != 1 or "where" not in lower:
        return ""
    shown, depth = list[str](), 0
    for part in lower[lower.index("where") + 1 :]:
        depth += (part == "(") - (part == ")")
        if depth == 0 and part in _BEHIND_FROM:
            break
        shown.append(part if depth == 0 and part[0] not in "'\"" else "()")
    return "".join(shown) if depth == 0 and _is_outer(lower) else ""


def _is_outer(tokens: list[str]) -> bool:
    """Whether the first ``where`` is in no parentheses."""
    before = tokens[: tokens.index("where")]
    return before.count("(") == before.count(")")


def tokens_of(text: str) -> list[str]:
    """The words, signs, spaces and quoted texts of a statement; a comment is a space."""
    return [" " if token.startswith(("--", "/*")) else token for token in _TOKEN.findall(text)]


def first_word(tokens: Iterable[str]) -> str:
    """The first word of a statement, in lower case; empty if it has none."""
    return next((token.lower() for token in tokens if _WORD.fullmatch(token)), "")


def check_nesting(tokens: list[str]) -> None:
    """Refuse what would take the database's parser minutes, in which nothing interrupts it.

    :raises ApiError: ``ParameterInvalid``.
    """
    depth = 0
    for part in tokens:
        depth += (part in ("(", "[", "{")) - (part in (")", "]", "}"))
        if not 0 <= depth <= _MAX_DEPTH:
            raise ApiError("ParameterInvalid", f"the SQL's parentheses do not match, or nest deeper than {_MAX_DEPTH}")
    if depth:
        raise ApiError("ParameterInvalid", "a parenthesis of the SQL is not closed")


def _outer_words(tokens: list[str]) -> Iterator[tuple[str, int]]:
    """The words outside of all parentheses, in lower case, and their places."""
    depth = 0
    for place, part in enumerate(tokens):
        depth += (part == "(") - (part == ")")
        if depth == 0 and _WORD.fullmatch(part):
            yield part.lower(), place


def _with_offset(statement: str) -> str:
    place = statement.lower().rindex("limit") + len("limit")
    return statement[:place] + _MYSQL_LIMIT.sub(r"\4 OFFSET \1", statement[place:])
