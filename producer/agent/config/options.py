"""Read options of components from TOML's typed values, or from a properties file's texts under Flume's names.

A component's ``Options`` is a frozen dataclass whose fields are made by :func:`~producer.model.options.option`.
:func:`read_options` checks all values, and reports all problems at once, with their lines.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ...model.errors import ConfigError, ProducerError
from ...model.options import Option, options_of, unknown
from ...text.printable import without_userinfo

_T = TypeVar("_T")
_SHELLS = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
#: Characters of a problem that are shown: a value may contain a whole file.
_MOST_SHOWN = 2000


def words_of(error: BaseException) -> str:
    """Return an error's text for logs and pages, without the users and passwords of URLs."""
    return without_userinfo(str(error))


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a configuration. Users and passwords of URLs are removed from its message.

    :ivar where: the component, such as ``sources.r1``, or a key of the agent's own.
    :ivar key: the option.
    :ivar message: the rule and the value.
    :ivar line: the line of the file, from 1 on; None if it is unknown.
    """

    where: str
    key: str
    message: str
    line: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", without_userinfo(self.message))

    def __str__(self) -> str:
        line = "" if self.line is None else f"line {self.line}"
        name = ".".join(part for part in (self.where, self.key) if part)
        return ": ".join(part for part in (line, name, _shortened(self.message)) if part)


def _shortened(message: str) -> str:
    """Truncate a message for display. Hide secrets first, since a cut secret would not be found."""
    if len(message) <= _MOST_SHOWN:
        return message
    return f"{message[: _MOST_SHOWN // 2]}… ({len(message):,} characters)"


class AgentConfigError(ProducerError):
    """Raised for a configuration that cannot be used, with all its problems.

    :ivar problems: the problems, at least one.
    """

    def __init__(self, problems: Sequence[Problem], source: str = "configuration") -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {len(problems)} problem{'s' * (len(problems) > 1)}\n{lines}")
        self.problems = tuple(problems)


def flume_name(each: Option) -> str:
    """Return Flume's key of an option."""
    first, *rest = each.name.split("_")
    return each.flume or first + "".join(map(str.capitalize, rest))


def from_flume(cls: type, values: Mapping[str, str]) -> dict[str, Any]:
    """Translate Flume's keys and texts to our names and values. Unknown keys stay as they are.

    Keys below a known one, such as ``headers.g1.k``, become a mapping. A class may have a method ``translate_flume``,
    which receives the texts first.
    """
    translate: Callable[[Mapping[str, str]], Mapping[str, Any]] | None = getattr(cls, "translate_flume", None)
    if translate is not None:
        values = translate(values)
    known = {flume_name(each): each for each in options_of(cls).values()}
    found: dict[str, Any] = {}
    for key, value in values.items():
        each, parent = known.get(key), _parent(key, known)
        if each is not None:
            found[each.name] = _scaled(value, each.scale)
        elif parent and isinstance(found.setdefault(known[parent].name, {}), dict):
            found[known[parent].name][key[len(parent) + 1 :]] = value
        else:
            found[key] = value
    return found


def _parent(key: str, known: Iterable[str]) -> str:
    """Return the longest known key that this one is below; empty if there is none."""
    return max((name for name in known if key.startswith(f"{name}.")), key=len, default="")


def _scaled(value: Any, scale: float) -> Any:
    if scale == 1:
        return value
    try:
        return float(value) * scale
    except (TypeError, ValueError):
        return value  # the check of the type reports it


def read_options(
    cls: type[_T],
    values: Mapping[str, Any],
    where: str,
    lines: Mapping[str, int] = {},
    beside: Sequence[str] = (),
    *,
    flume: bool = False,
) -> _T:
    """Build the options from a configuration's values.

    :param where: the component, for messages.
    :param lines: the line of each key in the file.
    :param beside: keys of the component that are not options, to suggest for a misspelt one.
    :param flume: True if the file is Flume's, so that messages use its units.
    :raises AgentConfigError: if anything is wrong, with all problems.
    """
    problems: list[Problem] = []
    options, chosen = options_of(cls), dict[str, Any]()
    for key, value in values.items():
        try:
            if key not in options:
                raise _unknown(key, options, beside, getattr(cls, "foreign", {}))
            chosen[key] = _checked(options[key], value, flume=flume)
        except ConfigError as error:
            problems.append(_problem(error, where, lines, value, options.get(key)))
    for name, each in options.items():
        if each.default is ... and name not in values:
            problems.append(Problem(where, name, f"is missing: {each.doc}"))
    if problems:
        raise AgentConfigError([*problems, *_problems_of_class(cls, chosen, where, lines)])
    return _made(cls, chosen, where, lines)


def _checked(each: Option, value: Any, *, flume: bool) -> Any:
    """Check a value of a file. A secret must not be a shell's variable, which the server would refuse as a key."""
    found = _SHELLS.fullmatch(value) if each.secret and isinstance(value, str) else None
    if found is not None:
        rule = f"is a shell's variable, which means nothing here; did you mean ${{env:{found[1]}}}?"
        raise ConfigError(each.name, rule, each.name)
    return each.check(value, text=True, scale=each.scale if flume else 1)


def _problem(
    error: ConfigError, where: str, lines: Mapping[str, int], value: Any = None, each: Option | None = None
) -> Problem:
    """Build the problem of an option. If the value is a number followed by a unit, the message adds the option's
    meaning.
    """
    message = f"{error.rule}{_got(error)}"
    if each is not None and each.unit is None and isinstance(value, str) and value[:1].isdigit() and not each.choices:
        message += f"; write it without a unit: {each.doc}"
    return Problem(where, error.name, message, lines.get(error.name))


def _made(cls: type[_T], chosen: Mapping[str, Any], where: str, lines: Mapping[str, int]) -> _T:
    try:
        return cls(**chosen)
    except ConfigError as error:
        each = options_of(cls).get(error.name)
        if each is not None and each.secret:
            error = ConfigError(error.name, error.rule, error.name)
        raise AgentConfigError([_problem(error, where, lines)]) from error


def _problems_of_class(cls: type, chosen: Mapping[str, Any], where: str, lines: Mapping[str, int]) -> list[Problem]:
    """Return the problems that the class itself finds in the valid options. Placeholders stand for missing texts."""
    texts = [name for name, each in options_of(cls).items() if each.kind is str and each.default is ...]
    found: list[Problem] = []
    for word in ("word", "http://word") if texts else ("",):
        try:
            _made(cls, {**dict.fromkeys(texts, word), **chosen}, where, lines)
        except AgentConfigError as error:
            found += [problem for problem in error.problems if problem.key in chosen and problem not in found]
        except (TypeError, ValueError, LookupError):
            continue  # it cannot be built without the missing options
    return found


def _unknown(key: str, options: Mapping[str, Option], beside: Sequence[str], foreign: Mapping[str, str]) -> ConfigError:
    for name, each in options.items():
        if key == flume_name(each):
            return ConfigError(key, f"is Flume's name; here the option is {name!r}", key)
    return unknown(key, [*options, *difflib.get_close_matches(key, beside, 1)], foreign if key in foreign else {})


def _got(error: ConfigError) -> str:
    """Return the value for a message, unless it is absent, is secret, or is in the rule."""
    value = error.value
    in_rule = isinstance(value, str) and value and repr(value) in error.rule
    return "" if value is None or value is error.name or in_rule else f", got {shown(value)}"


def shown(value: Any) -> str:
    """Return a value as a file has it."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def typed(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a properties file's texts to the values of a TOML file: numbers, booleans, lists and tables.

    A text in a wrong form stays a text, so that :func:`read_options` reports it. A text with an unresolved reference
    such as ``${env:X}`` stays one, too.
    """
    options = options_of(cls)
    return {key: _plain(value, options[key]) if key in options else value for key, value in values.items()}


def _plain(value: Any, each: Option) -> Any:
    if each.kind is Path or "${" in str(value):
        return value
    try:
        converted = Option(kind=each.kind, unit=each.unit).check(value, text=True)
    except ConfigError:
        return value
    if isinstance(converted, tuple):
        return value.split() if isinstance(value, str) else list(converted)
    if isinstance(converted, Mapping):
        inner = dataclasses.replace(each, kind=typing.get_args(each.kind)[1])
        return {name: _plain(item, inner) for name, item in (converted if isinstance(value, str) else value).items()}
    return value if isinstance(converted, Path) or converted is None else converted


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that was meant, to end a message."""
    names = list(known)
    found = difflib.get_close_matches(name, names, 1, 0.6)
    if found:
        return f"; did you mean {found[0]!r}?"
    return f"; there is only {names[0]}" if len(names) == 1 else f"; there are {', '.join(sorted(names)) or 'none'}"


def missing_file(name: str, path: Path | str | None) -> Iterator[ConfigError]:
    """Yield an error if the file that an option names cannot be read."""
    try:
        if path is not None:
            with open(path, "rb"):  # noqa: PTH123  # a text may come as a path, too
                pass
    except OSError as error:
        yield ConfigError(name, f"cannot be read: {error.strerror}", str(path))
