"""Reader of a query's SQL: it finds the fields, and for GetProjectLogs the logstores and times, that are needed.

It reads tokens, in linear time, since the text is a client's. The statement's process parses and translates it
(``sql_engine/dialect``). sqlglot's tree would serve here, too, but 8 KB of text can cost it seconds, which only that
process can end.
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import ApiError

_MAX_DEPTH = 16

# An unclosed token ends with the text, so that no part of it is scanned again and again.
_TOKEN = re.compile(
    r"""'(?:[^']|'')*+(?:'|\Z)|"(?:[^"]|"")*+(?:"|\Z)|[eE]'(?:[^'\\]|''|\\.)*+(?:'|\Z)|\$\$.*?(?:\$\$|\Z)"""
    r"""|--[^\n]*|/\*.*?(?:\*/|\Z)|\w+|\s+|.""",
    re.DOTALL,
)
_NAME_PART = re.compile(r"[\w.-]+")
_MAX_NAME_PARTS = 128
_WORD = re.compile(r"\w+")
_AFTER_FROM = {
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
#: First words of SPL's operators.
_SPL_OPERATORS = {"where", "extend", "project", "parse", "limit", "sort", "expand", "stats"}
_ALL_FIELDS = re.compile(r"(?:\bselect|\bdistinct|\ball|,|\.)\s*\*|\bcolumns\s*\(|\blog\s*\)", re.IGNORECASE)

_FOLDING = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def folded(name: str) -> str:
    """Return a field's name in lower case, as the database folds it: only ASCII letters change."""
    return name.lower() if name.isascii() else name.translate(_FOLDING)


@dataclass(frozen=True, slots=True)
class SqlText:
    """A statement to run.

    :ivar text: the statement.
    :ivar words: its words as :func:`folded`, names among them.
    :ivar wants_all: True if it may need every field.
    """

    text: str
    words: frozenset[str]
    wants_all: bool

    def wants(self, field: str) -> bool:
        """Return True if the statement may need the field."""
        return self.wants_all or field.lower().replace('"', '""') in self.text.lower()


def read_sql(text: str) -> SqlText:
    """Read a statement.

    :raises ApiError: ``ParameterInvalid``, it is not a SELECT.
    """
    tokens = tokens_of(text.strip().rstrip(";"))
    words = frozenset(folded(token).strip('"') for token in tokens if _WORD.fullmatch(token) or token.startswith('"'))
    first = first_word(tokens)
    if first not in ("select", "with"):
        spl = "; SPL needs PullLogs, or session 'mode=scan'" if first in _SPL_OPERATORS else ""
        message = f"{first[:64]!r} after '|' is not known: use SELECT, WITH or with_pack_meta{spl}"
        raise ApiError("ParameterInvalid", message)
    check_nesting(tokens)
    return SqlText("".join(tokens), words, _ALL_FIELDS.search(text) is not None)


def tables_in(text: str, known: Iterable[str]) -> tuple[str, list[str]]:
    """Find the ``known`` logstores after FROM, JOIN or a comma, and put their names into quotation marks.

    :returns: the statement, in which ``FROM app-log`` is valid, and the names found.
    """
    tokens, names = _TOKEN.findall(text), {name.lower(): name for name in known}
    found, parts, before = dict[str, None](), list[str](), ""
    while tokens:
        size = _name_size(tokens, names) if before in ("from", "join", ",") else 0
        if size:
            name = names["".join(tokens[:size]).lower().strip('"')]
            found[name] = None
            # After a comma it may be a field, or an expression that only looks like a name.
            parts += tokens[:size] if before == "," and size > 1 else [f'"{name}"']
        else:
            parts.append(tokens[0])
        last = tokens[max(size, 1) - 1].lower()
        before = before if last.isspace() else last
        del tokens[: max(size, 1)]
    return "".join(parts), list(found)


def _name_size(tokens: list[str], names: Mapping[str, str]) -> int:
    """Return the number of tokens of the longest name at their start; 0 for none."""
    if tokens[0].startswith('"'):
        return int(tokens[0].lower().strip('"') in names)
    run = itertools.takewhile(_NAME_PART.fullmatch, tokens[:_MAX_NAME_PARTS])
    joined = list(itertools.accumulate(part.lower() for part in run))
    return max((size for size, name in enumerate(joined, 1) if name in names), default=0)


def where_of(text: str) -> str:
    """Return the condition of a SELECT, with quoted texts and parentheses as ``()``.

    Empty for a statement with another SELECT, where the rows of the condition are uncertain.
    """
    tokens = tokens_of(text)
    lower = [part.lower() for part in tokens]
    if lower.count("select") != 1 or "where" not in lower:
        return ""
    shown, depth = list[str](), 0
    for part in lower[lower.index("where") + 1 :]:
        depth += (part == "(") - (part == ")")
        if depth == 0 and part in _AFTER_FROM:
            break
        shown.append(part if depth == 0 and part[0] not in "'\"" else "()")
    return "".join(shown) if depth == 0 and _is_outer(lower) else ""


def _is_outer(tokens: list[str]) -> bool:
    """Return True if the first ``where`` is outside all parentheses."""
    before = tokens[: tokens.index("where")]
    return before.count("(") == before.count(")")


def tokens_of(text: str) -> list[str]:
    """Return the words, signs, spaces and quoted texts of a statement; a comment becomes a space."""
    return [" " if token.startswith(("--", "/*")) else token for token in _TOKEN.findall(text)]


def first_word(tokens: Iterable[str]) -> str:
    """Return the first word of a statement, in lower case; empty if it has none."""
    return next((token.lower() for token in tokens if _WORD.fullmatch(token)), "")


def check_nesting(tokens: list[str]) -> None:
    """Refuse deep nesting: the database's parser would take minutes, and cannot be interrupted.

    :raises ApiError: ``ParameterInvalid``.
    """
    depth = 0
    for part in tokens:
        depth += (part in ("(", "[", "{")) - (part in (")", "]", "}"))
        if not 0 <= depth <= _MAX_DEPTH:
            raise ApiError("ParameterInvalid", f"the SQL's parentheses do not match, or nest deeper than {_MAX_DEPTH}")
    if depth:
        raise ApiError("ParameterInvalid", "a parenthesis of the SQL is not closed")
