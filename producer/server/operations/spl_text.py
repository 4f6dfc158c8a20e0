"""SPL before it is run: ``* | where status = '500' | extend ms = cast(latency as double) | project status, ms``.

What an operator calculates is SQL; which fields a log has afterwards is not, so that values that are no text stay as
they are. So a pipeline becomes one statement, which gives the logs that are kept and what was calculated for each, and
the steps, which are then taken with the fields of these logs. In the statement names of fields stand for the
expressions: these are only split here, and the database's parser says what they are, see ``sql_engine``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..errors import ApiError
from .sql_text import SqlText, check_nesting, folded, tokens_of

#: What the names of this module's own columns and tables begin with: no query names a field of such a name.
OWN = "spl "
#: The column with the number of a log in its page, and the table that the logs are.
ROW = f"{OWN}row"
PAGE = f"{OWN}page"
_MAX_STEPS = 32
_PART = re.compile(r"\s*([\w-]*)\s*(.*?)\s*", re.DOTALL)
_NAME = re.compile(r'\s*("[^"]+"|[^\W\d]\w*)\s*', re.DOTALL)
_OF_THE_GROUP = ("__topic__", "__source__", "__tag__:")


@dataclass(frozen=True, slots=True)
class Step:
    """One operator and the fields it is about.

    :ivar operator: ``extend``, ``project``, ``project-away`` or ``project-rename``.
    :ivar fields: pairs: the name of a field, and for ``extend`` the column of the result that has its value, for
        ``project`` and ``project-rename`` the field that it was.
    """

    operator: str
    fields: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What stands in a query of SPL.

    :ivar sql: which fields it may want.
    :ivar statement: the statement that it becomes.
    :ivar expressions: its expressions, by the names that stand for them in the statement.
    :ivar steps: what becomes of the fields of the logs that the statement keeps.
    """

    sql: SqlText
    statement: str
    expressions: dict[str, str]
    steps: list[Step]


def read_spl(text: str) -> Pipeline:
    """The pipeline in ``text``.

    :raises ApiError: ``ParameterInvalid``, it cannot be read.
    """
    tokens = tokens_of(text)
    check_nesting(tokens)
    first, *parts = ("".join(part) for part in _split(tokens, "|"))
    if first.strip() != "*":
        raise _unreadable(f"{first.strip()[:64]!r} stands where '*' must: '* | where …'")
    if len(parts) > _MAX_STEPS:
        raise _unreadable(f"it has {len(parts)} operators, {_MAX_STEPS} are allowed")
    words = frozenset(folded(token).strip('"') for token in tokens if re.fullmatch(r'\w+|".*"', token, re.DOTALL))
    builder = _Builder(set(words))
    for part in parts:
        builder.add(part)
    statement = builder.statement()
    sql = SqlText(f"{text} {statement}", has_limit=True, words=words, wants_all=False)
    return Pipeline(sql, statement, builder.expressions, builder.steps)


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

    def add(self, part: str) -> None:
        operators: dict[str, Callable[[str], None]] = {
            "where": self._where,
            "extend": self._extend,
            "project": self._project,
            "project-away": self._away,
            "project-rename": self._rename,
        }
        match = _PART.fullmatch(part)
        operator, rest = (match[1].lower(), match[2]) if match else ("", "")
        if operator not in operators:
            known = ", ".join(operators)
            raise _unreadable(f"{operator[:64] or part.strip()[:64]!r} is no operator that this server has: {known}")
        if not rest:
            raise _unreadable(f"nothing follows {operator}")
        operators[operator](rest)

    def statement(self) -> str:
        shown = "".join(f", CAST({_quoted(name)} AS VARCHAR) AS {_quoted(name)}" for name in self.results)
        tables = f"WITH {', '.join(self.tables)} " if self.tables else ""
        return f"{tables}SELECT {_quoted(ROW)}{shown} FROM {self._last()}"  # noqa: S608 - bounded by who runs it

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

    def _project(self, rest: str) -> None:
        pairs = [(new, old) for new, old in _renamed(rest, "project") if folded(new) != "__time__"]
        kept = "".join(f", {_quoted(name)}" for name in [ROW, "__time__", *self.results])[2:]
        shown = "".join(f", {self._value(old)} AS {_quoted(new)}" for new, old in pairs)
        self._table(f"{kept}{shown}")
        self.visible = set()
        self._step("project", pairs)

    def _away(self, rest: str) -> None:
        names = [_name(part) for part in _split_text(rest)]
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
            raise _unreadable(f"{operator} names a field twice")
        changed = [name for name, old in fields if name != old or operator != "project"]
        wrong = [name for name in changed if folded(name) == "__time__" or folded(name).startswith(_OF_THE_GROUP)]
        if wrong:
            raise _unreadable(f"{operator} cannot change {wrong[0][:64]!r}: only fields of a log can be changed")
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
        select = f"SELECT {columns} FROM {self._last()}{condition}"  # noqa: S608 - likewise
        self.tables.append(f"{_quoted(f'{OWN}table {len(self.tables)}')} AS ({select})")

    def _last(self) -> str:
        return _quoted(f"{OWN}table {len(self.tables) - 1}" if self.tables else PAGE)

    def _value(self, name: str) -> str:
        return _quoted(name) if folded(name) in self.visible or folded(name) == "__time__" else "NULL"

    def _all_but(self, names: Iterator[str] | list[str] | dict[str, None]) -> str:
        gone = dict.fromkeys(folded(name) for name in names if folded(name) in self.visible)
        return f"* EXCLUDE ({', '.join(map(_quoted, gone))})" if gone else "*"


def _split(tokens: list[str], sign: str) -> Iterator[list[str]]:
    """The parts between the signs that stand alone and outside of all parentheses: ``||`` is none."""
    part, depth = list[str](), 0
    for place, token in enumerate(tokens):
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        if (
            token == sign
            and depth == 0
            and "||"
            not in (
                "".join(tokens[max(place - 1, 0) : place + 1]),
                "".join(tokens[place : place + 2]),
            )
        ):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _split_text(text: str) -> list[str]:
    return ["".join(part) for part in _split(tokens_of(text), ",")]


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    for part in _split_text(text):
        name, sign, value = part.partition("=")
        if not sign or not value.strip():
            raise _unreadable(f"{part.strip()[:64]!r} in extend: it must be 'field = expression'")
        yield _name(name), value.strip()


def _renamed(text: str, operator: str) -> Iterator[tuple[str, str]]:
    for part in _split_text(text):
        name, sign, old = part.partition("=")
        if not sign and operator == "project-rename":
            raise _unreadable(f"{part.strip()[:64]!r} in {operator}: it must be 'new = old'")
        yield _name(name), _name(old if sign else name)


def _name(text: str) -> str:
    match = _NAME.fullmatch(text)
    if match is None:
        raise _unreadable(f'{text.strip()[:64]!r} is no name of a field: write one of other signs in "quotation marks"')
    name = match[1].strip('"')
    if folded(name).startswith(OWN):
        raise _unreadable(f"{name[:64]!r}: fields whose names begin with {OWN!r} cannot be named")
    return name


def _quoted(name: str) -> str:
    return f'"{name}"'


def _unreadable(reason: str) -> ApiError:
    return ApiError("ParameterInvalid", f"the query of PullLogs cannot be read: {reason}")
