"""Compiler of SPL: ``* | where status = '500' | extend ms = cast(latency as double) | project status, ms``.

Operators calculate in SQL. The fields that a log keeps do not go through SQL, so values that are not text stay
unchanged. A pipeline becomes one statement and a list of steps. The statement returns the kept logs and the calculated
values of each. The steps then change the fields of these logs.

In the statement names of columns stand for the expressions. This module only splits the expressions; the database's
parser checks them (``sql_engine``). The fields extracted by the operators of ``spl_extract`` are known only after they
ran, so each of these divides a pipeline into two statements. It is read here since no package knows SPL; sqlglot
translates the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from .spl_extract import Extraction, Limit, read_limit, read_parse_csv, read_parse_json, read_parse_kv
from .spl_fields import OWN, SHARED_PREFIXES, name_of, split, split_text, unreadable
from .sql_text import SqlText, check_nesting, folded, tokens_of

#: The column with a log's number in its page, and the table of logs.
ROW = f"{OWN}row"
PAGE = f"{OWN}page"
_MAX_STEPS = 32
_PART = re.compile(r"([\w-]*+)\s*+(.*)", re.DOTALL)
_GROUP_NAME = re.compile(r"\(\?P<(\w+)>")
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)", re.DOTALL)
_PATTERN = re.compile(r"\s*('(?:[^']|'')*')\s*(?:as\s+(.+))?", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """An operator and its fields.

    :ivar operator: ``extend``, ``parse-regexp``, ``project``, ``project-away`` or ``project-rename``.
    :ivar fields: pairs of the name of a field and its origin: for ``extend`` and ``parse-regexp`` a column of the
        result, for ``project`` and ``project-rename`` the old name.
    """

    operator: str
    fields: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Calculation:
    """Operators of a query that run as one statement.

    :ivar sql: the fields that the statement may need.
    :ivar statement: the statement.
    :ivar expressions: the expressions by their names in the statement.
    :ivar steps: the changes of fields of the logs that the statement keeps.
    """

    sql: SqlText
    statement: str
    expressions: dict[str, str]
    steps: list[Step]


#: The stages of a page, in order.
Pipeline = list[Calculation | Extraction | Limit]

_EXTRACTIONS: dict[str, Callable[[str], Extraction | Limit]] = {
    "parse-csv": read_parse_csv,
    "parse-json": read_parse_json,
    "parse-kv": read_parse_kv,
    "limit": read_limit,
}


def read_spl(text: str) -> Pipeline:
    """Compile a pipeline.

    :raises ApiError: ``ParameterInvalid``, it is invalid.
    """
    tokens = tokens_of(text.rstrip().removesuffix(";"))
    check_nesting(tokens)
    first, *parts = ("".join(part) for part in split(tokens, "|"))
    if first.strip() != "*":
        raise unreadable(f"it begins with {first.strip()[:64]!r}: begin with '*', as in '* | where …'")
    if len(parts) > _MAX_STEPS:
        raise unreadable(f"it has {len(parts)} operators: at most {_MAX_STEPS} are allowed")
    named = [token for token in tokens if re.fullmatch(r'\w+|".*"', token, re.DOTALL)] + _GROUP_NAME.findall(text)
    words = frozenset(folded(token).strip('"') for token in named)
    pipeline, builder = Pipeline(), _Builder(set(words))
    for operator, rest in map(_operator, parts):
        if operator in _EXTRACTIONS:
            pipeline += [*builder.calculation(text, words), _EXTRACTIONS[operator](rest)]
            builder = _Builder(set(words))
        else:
            builder.add(operator, rest)
    return [*pipeline, *builder.calculation(text, words)]


def _operator(part: str) -> tuple[str, str]:
    """Return the operator and its arguments."""
    match = _PART.fullmatch(part.strip())
    operator, rest = (match[1].lower(), match[2]) if match else ("", "")
    if operator not in _Builder.OPERATORS and operator not in _EXTRACTIONS:
        known = ", ".join([*_Builder.OPERATORS, *_EXTRACTIONS])
        raise unreadable(f"{operator[:64] or part.strip()[:64]!r} is not an operator of this server: use {known}")
    if not rest:
        raise unreadable(f"{operator} has no arguments: write them after it")
    return operator, rest


@dataclass(slots=True)
class _Builder:
    """A builder of statements, with a table for each operator.

    :ivar visible: the folded names of the fields that the next operator sees. At first all named fields are visible.
    :ivar tables: the statement's tables so far.
    :ivar results: the columns of calculated values.
    :ivar expressions: the expressions by their names in the tables.
    """

    visible: set[str]
    tables: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    expressions: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    OPERATORS: ClassVar[tuple[str, ...]] = (
        *("where", "extend", "project", "project-away", "project-rename", "parse-regexp"),
    )

    def add(self, operator: str, rest: str) -> None:
        methods = (self._where, self._extend, self._project, self._away, self._rename, self._parse_regexp)
        dict(zip(self.OPERATORS, methods, strict=True))[operator](rest)

    def calculation(self, text: str, words: frozenset[str]) -> list[Calculation]:
        """Return the calculation built so far; an empty list if there is none."""
        if not self.tables:
            return []
        statement = self._statement()
        sql = SqlText(f"{text} {statement}", words=words, wants_all=False)
        return [Calculation(sql, statement, self.expressions, self.steps)]

    def _statement(self) -> str:
        shown = "".join(f", CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in self.results)
        tables = f"WITH {', '.join(self.tables)} " if self.tables else ""
        return f"{tables}SELECT {_quoted(ROW)}{shown} FROM {self._last()}"

    def _where(self, rest: str) -> None:
        # A log for which the condition cannot be calculated does not match, and the others still may. An expression
        # that is not a condition, such as a field alone, is an error: it would match nothing, or depend on the field's
        # content.
        no_condition = "no condition follows where: write one that is true or false, such as field = ''text''"
        tried = f"TRY({self._stand_in(rest)})"
        self._table("*", f" WHERE IF(typeof({tried}) = 'BOOLEAN', {tried}, error('{no_condition}'))")

    def _extend(self, rest: str) -> None:
        pairs = list(_assigned(rest))
        values = ", ".join(f"TRY({self._stand_in(value)}) AS {_quoted(name)}" for name, value in pairs)
        self._table(f"{self._all_but(name for name, _ in pairs)}, {values}")
        columns = [f"{OWN}{len(self.steps)} {number}" for number in range(len(pairs))]
        copies = ", ".join(
            f"{_quoted(name)} AS {_quoted(column)}" for (name, _), column in zip(pairs, columns, strict=True)
        )
        self._table(f"*, {copies}")
        self.results += columns
        self._step("extend", [(name, column) for (name, _), column in zip(pairs, columns, strict=True)])

    def _parse_regexp(self, rest: str) -> None:
        field, _, rest = rest.partition(",")
        match = _PATTERN.fullmatch(rest)
        if match is None:
            raise unreadable("parse-regexp needs a field, a pattern and names: \"parse-regexp field, '(a+)' as a\"")
        outputs = _groups_of(match[1], match[2])
        text, columns = self._value(name_of(field)), list[tuple[str, str]]()
        # Outside of TRY, which would hide an invalid pattern.
        readable = self._stand_in(f"regexp_matches('', {match[1]})")
        self._table("*", f" WHERE {readable} IS NOT NULL")
        for name, group in outputs:
            found = f"regexp_extract({text}, {match[1]}, {group})"
            expression = f"CASE WHEN regexp_matches({text}, {match[1]}) THEN {found} END"
            columns.append((name, f"{OWN}{len(self.steps)} {len(columns)}"))
            self._table(f"*, TRY({self._stand_in(expression)}) AS {_quoted(columns[-1][1])}")
        values = ", ".join(
            f"COALESCE({_quoted(column)}, {self._value(name)}) AS {_quoted(name)}" for name, column in columns
        )
        self._table(f"{self._all_but(name for name, _ in columns)}, {values}")
        self.results += [column for _, column in columns]
        self._step("parse-regexp", columns)

    def _project(self, rest: str) -> None:
        pairs = [(new, old) for new, old in _renamed(rest, "project") if folded(new) != "__time__"]
        kept = "".join(f", {_quoted(name)}" for name in [ROW, "__time__", *self.results])[2:]
        shown = "".join(f", {self._value(old)} AS {_quoted(new)}" for new, old in pairs)
        self._table(f"{kept}{shown}")
        self.visible = set()
        self._step("project", pairs)

    def _away(self, rest: str) -> None:
        names = [name_of(part) for part in split_text(rest)]
        self._table(f"{self._all_but(names)}")
        self.visible -= {folded(name) for name in names}
        self._step("project-away", [(name, name) for name in names], is_known=False)

    def _rename(self, rest: str) -> None:
        pairs = list(_renamed(rest, "project-rename"))
        gone = dict.fromkeys(folded(name) for pair in pairs for name in pair)
        values = ", ".join(f"{self._value(old)} AS {_quoted(new)}" for new, old in pairs)
        self._table(f"{self._all_but(gone)}, {values}")
        self.visible -= set(gone)
        self._step("project-rename", pairs)

    def _step(self, operator: str, fields: list[tuple[str, str]], *, is_known: bool = True) -> None:
        names = [folded(name) for name, _ in fields]
        if len(set(names)) < len(names):
            raise unreadable(f"{operator} names a field twice")
        changed = [name for name, old in fields if name != old or operator != "project"]
        wrong = [name for name in changed if folded(name) == "__time__" or folded(name).startswith(SHARED_PREFIXES)]
        if wrong:
            raise unreadable(f"{operator} cannot change {wrong[0][:64]!r}: it is not a field of a single log")
        self.steps.append(Step(operator, fields))
        if is_known:
            self.visible |= set(names)

    def _stand_in(self, expression: str) -> str:
        """Register an expression, and return its name in the statement."""
        name = f"{OWN}expression {len(self.expressions)}"
        self.expressions[name] = expression
        return _quoted(name)

    def _table(self, columns: str, condition: str = "") -> None:
        """Append a table that is made of the last one."""
        select = f"SELECT {columns} FROM {self._last()}{condition}"
        self.tables.append(f"{_quoted(f'{OWN}table {len(self.tables)}')} AS ({select})")

    def _last(self) -> str:
        return _quoted(f"{OWN}table {len(self.tables) - 1}" if self.tables else PAGE)

    def _value(self, name: str) -> str:
        return _quoted(name) if folded(name) in self.visible or folded(name) == "__time__" else "NULL"

    def _all_but(self, names: Iterator[str] | list[str] | dict[str, None]) -> str:
        gone = dict.fromkeys(folded(name) for name in names if folded(name) in self.visible)
        return f"* EXCLUDE ({', '.join(map(_quoted, gone))})" if gone else "*"


def _groups_of(literal: str, names: str | None) -> list[tuple[str, int]]:
    """Return the names of the outputs and their groups; by default the names of the pattern's own groups."""
    try:
        # Classes of characters are replaced: each takes milliseconds to compile, and contains no group.
        pattern = re.compile(_CLASS.sub(_without_members, literal[1:-1].replace("''", "'")))
    except (re.error, RecursionError, OverflowError) as error:
        raise unreadable(f"the pattern {literal[:64]} of parse-regexp is invalid: {error}") from error
    outputs = [name_of(part) for part in split_text(names)] if names else list(pattern.groupindex)
    if not outputs or len(outputs) > pattern.groups:
        raise unreadable(f"parse-regexp has {len(outputs)} outputs: use 1 to {pattern.groups}, the pattern's groups")
    return [(name, number if names else pattern.groupindex[name]) for number, name in enumerate(outputs, 1)]


def _without_members(match: re.Match[str]) -> str:
    is_class = match[0].startswith("[") and match[0].endswith("]")
    return "." if is_class else match[0]


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    for part in split_text(text):
        name, sign, value = part.partition("=")
        if not sign or not value.strip():
            raise unreadable(f"extend contains {part.strip()[:64]!r}: write 'field = expression'")
        yield name_of(name), value.strip()


def _renamed(text: str, operator: str) -> Iterator[tuple[str, str]]:
    for part in split_text(text):
        name, sign, old = part.partition("=")
        if not sign and operator == "project-rename":
            raise unreadable(f"{operator} contains {part.strip()[:64]!r}: write 'new = old'")
        yield name_of(name), name_of(old if sign else name)


def _quoted(name: str) -> str:
    return f'"{name}"'
