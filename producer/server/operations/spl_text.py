"""SPL before it is run: ``* | where status = '500' | extend ms = cast(latency as double) | project status, ms``.

What an operator calculates is SQL; which fields a log has afterwards is not, so that values that are no text stay as
they are. So a pipeline becomes one statement, which gives the logs that are kept and what was calculated for each, and
the steps, which are then taken with the fields of these logs. In the statement names of fields stand for the
expressions: these are only split here, and the database's parser says what they are, see ``sql_engine``. What the
operators of ``spl_extract`` find is known only when they have run: each of them divides a pipeline into two statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from .spl_extract import Extraction, Limit, read_limit, read_parse_csv, read_parse_json, read_parse_kv
from .spl_fields import OF_THE_GROUP, OWN, name_of, split, split_text, unreadable
from .sql_text import SqlText, check_nesting, folded, tokens_of

#: The column with the number of a log in its page, and the table that the logs are.
ROW = f"{OWN}row"
PAGE = f"{OWN}page"
_MAX_STEPS = 32
_PART = re.compile(r"([\w-]*+)\s*+(.*)", re.DOTALL)
_GROUP_NAME = re.compile(r"\(\?P<(\w+)>")
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+(?:\]|\Z)", re.DOTALL)
_PATTERN = re.compile(r"\s*('(?:[^']|'')*')\s*(?:as\s+(.+))?", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator and the fields it is about.

    :ivar operator: ``extend``, ``parse-regexp``, ``project``, ``project-away`` or ``project-rename``.
    :ivar fields: pairs: the name of a field, and for ``extend`` and ``parse-regexp`` the column of the result that has
        its value, for ``project`` and ``project-rename`` the field that it was.
    """

    operator: str
    fields: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Calculation:
    """Operators of a query that are run as one statement.

    :ivar sql: which fields it may want.
    :ivar statement: the statement that it becomes.
    :ivar expressions: its expressions, by the names that stand for them in the statement.
    :ivar steps: what becomes of the fields of the logs that the statement keeps.
    """

    sql: SqlText
    statement: str
    expressions: dict[str, str]
    steps: list[Step]


#: What is done with a page, one after another.
Pipeline = list[Calculation | Extraction | Limit]

_EXTRACTIONS: dict[str, Callable[[str], Extraction | Limit]] = {
    "parse-csv": read_parse_csv,
    "parse-json": read_parse_json,
    "parse-kv": read_parse_kv,
    "limit": read_limit,
}


def read_spl(text: str) -> Pipeline:
    """The pipeline in ``text``.

    :raises ApiError: ``ParameterInvalid``, it cannot be read.
    """
    tokens = tokens_of(text.rstrip().removesuffix(";"))
    check_nesting(tokens)
    first, *parts = ("".join(part) for part in split(tokens, "|"))
    if first.strip() != "*":
        raise unreadable(f"{first.strip()[:64]!r} stands where '*' must: '* | where …'")
    if len(parts) > _MAX_STEPS:
        raise unreadable(f"it has {len(parts)} operators, {_MAX_STEPS} are allowed")
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
    """The operator and what follows it."""
    match = _PART.fullmatch(part.strip())
    operator, rest = (match[1].lower(), match[2]) if match else ("", "")
    if operator not in _Builder.OPERATORS and operator not in _EXTRACTIONS:
        known = ", ".join([*_Builder.OPERATORS, *_EXTRACTIONS])
        raise unreadable(f"{operator[:64] or part.strip()[:64]!r} is no operator that this server has: {known}")
    if not rest:
        raise unreadable(f"nothing follows {operator}")
    return operator, rest


@dataclass(slots=True)
class _Builder:
    """Puts the statement together, a table for each operator.

    :ivar visible: the fields that the next operator sees, folded. In the beginning all that are named are there.
    :ivar tables: the statement's tables so far.
    :ivar results: the columns with what was calculated.
    :ivar expressions: the expressions, by the names that stand for them in the tables.
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
        """What was added; none for nothing."""
        if not self.tables:
            return []
        statement = self._statement()
        sql = SqlText(f"{text} {statement}", has_limit=True, words=words, wants_all=False)
        return [Calculation(sql, statement, self.expressions, self.steps)]

    def _statement(self) -> str:
        shown = "".join(f", CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in self.results)
        tables = f"WITH {', '.join(self.tables)} " if self.tables else ""
        return f"{tables}SELECT {_quoted(ROW)}{shown} FROM {self._last()}"

    def _where(self, rest: str) -> None:
        # What cannot be calculated of one log says nothing of the others: it is no match. What is no condition at all,
        # such as a field alone, would match nothing, or by what the field holds.
        no_condition = "what follows where is no condition, such as field = ''text'': it must be true or false"
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
        # Outside of TRY, which would say nothing of a pattern that the database cannot read.
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
        wrong = [name for name in changed if folded(name) == "__time__" or folded(name).startswith(OF_THE_GROUP)]
        if wrong:
            raise unreadable(f"{operator} cannot change {wrong[0][:64]!r}: only fields of a log can be changed")
        self.steps.append(Step(operator, fields))
        if is_known:
            self.visible |= set(names)

    def _stand_in(self, expression: str) -> str:
        """What stands for an expression."""
        name = f"{OWN}expression {len(self.expressions)}"
        self.expressions[name] = expression
        return _quoted(name)

    def _table(self, columns: str, condition: str = "") -> None:
        """One more table, made of the last one."""
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
    """The names of the outputs and the groups that they are for; without names, those of the pattern's own groups."""
    try:
        # Each range of characters would take milliseconds to compile, and has no group.
        pattern = re.compile(_CLASS.sub(_without_members, literal[1:-1].replace("''", "'")))
    except (re.error, RecursionError, OverflowError) as error:
        raise unreadable(f"the pattern {literal[:64]} of parse-regexp cannot be read: {error}") from error
    outputs = [name_of(part) for part in split_text(names)] if names else list(pattern.groupindex)
    if not outputs or len(outputs) > pattern.groups:
        raise unreadable(f"parse-regexp has {len(outputs)} outputs, and its pattern {pattern.groups} groups")
    return [(name, number if names else pattern.groupindex[name]) for number, name in enumerate(outputs, 1)]


def _without_members(match: re.Match[str]) -> str:
    is_class = match[0].startswith("[") and match[0].endswith("]")
    return "." if is_class else match[0]


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    for part in split_text(text):
        name, sign, value = part.partition("=")
        if not sign or not value.strip():
            raise unreadable(f"{part.strip()[:64]!r} in extend: it must be 'field = expression'")
        yield name_of(name), value.strip()


def _renamed(text: str, operator: str) -> Iterator[tuple[str, str]]:
    for part in split_text(text):
        name, sign, old = part.partition("=")
        if not sign and operator == "project-rename":
            raise unreadable(f"{part.strip()[:64]!r} in {operator}: it must be 'new = old'")
        yield name_of(name), name_of(old if sign else name)


def _quoted(name: str) -> str:
    return f'"{name}"'
