"""Options of components, read from a file: TOML's typed values, or the texts of a properties file with Flume's names.

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
#: Characters of a problem that are shown: a value may be a whole file that got into one.
_MOST_SHOWN = 2000


def words_of(error: BaseException) -> str:
    """What it says, as logs and pages show it: libraries name addresses as they were given them."""
    return without_userinfo(str(error))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration; what URLs tell of users and passwords is not kept.

    :ivar where: the component, such as ``sources.r1``; or a key of the agent's own.
    :ivar key: the option.
    :ivar message: the rule and the value.
    :ivar line: of the file, from 1 on, if it is known.
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
    """As much of it as somebody reads; not before secrets are hidden in it, which would not be found cut."""
    if len(message) <= _MOST_SHOWN:
        return message
    return f"{message[: _MOST_SHOWN // 2]}… ({len(message):,} characters)"


class AgentConfigError(ProducerError):
    """A configuration that cannot be used: all that is wrong with it.

    :ivar problems: at least one.
    """

    def __init__(self, problems: Sequence[Problem], source: str = "configuration") -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {len(problems)} problem{'s' * (len(problems) > 1)}\n{lines}")
        self.problems = tuple(problems)


def flume_name(each: Option) -> str:
    """Flume's key of an option."""
    first, *rest = each.name.split("_")
    return each.flume or first + "".join(map(str.capitalize, rest))


def from_flume(cls: type, values: Mapping[str, str]) -> dict[str, Any]:
    """Flume's keys and texts as our names and values; keys that are not known stay as they are.

    Keys with a dot behind a known one, such as ``headers.g1.k``, become a mapping. A class may have a method
    ``translate_flume`` for what is made otherwise; it is given the texts first.
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
    """The longest known key of which this one is a part; empty if there is none."""
    return max((name for name in known if key.startswith(f"{name}.")), key=len, default="")


def _scaled(value: Any, scale: float) -> Any:
    if scale == 1:
        return value
    try:
        return float(value) * scale
    except (TypeError, ValueError):
        return value  # the type's rule will say what is wrong


def read_options(
    cls: type[_T],
    values: Mapping[str, Any],
    where: str,
    lines: Mapping[str, int] = {},
    beside: Sequence[str] = (),
    *,
    flume: bool = False,
) -> _T:
    """Options made of a configuration's values.

    :param where: the component, for messages.
    :param lines: where in the file each key stands.
    :param beside: keys of the component that are no options, and may have been meant.
    :param flume: whether they stand in a file of Flume's, so that messages have its units.
    :raises AgentConfigError: with all that is wrong.
    """
    problems: list[Problem] = []
    options, chosen = options_of(cls), dict[str, Any]()
    for key, value in values.items():
        try:
            if key not in options:
                raise _unknown(key, options, beside)
            chosen[key] = _checked(options[key], value, flume=flume)
        except ConfigError as error:
            problems.append(_problem(error, where, lines, value, options.get(key)))
    for name, each in options.items():
        if each.default is ... and name not in values:
            problems.append(Problem(where, name, f"is missing: {each.doc}"))
    if problems:
        raise AgentConfigError([*problems, *_also_wrong(cls, chosen, where, lines)])
    return _made(cls, chosen, where, lines)


def _checked(each: Option, value: Any, *, flume: bool) -> Any:
    """Check a value of a file; a shell's variable would be a key that no server knows."""
    found = _SHELLS.fullmatch(value) if each.secret and isinstance(value, str) else None
    if found is not None:
        rule = f"is a shell's variable, which means nothing here; did you mean ${{env:{found[1]}}}?"
        raise ConfigError(each.name, rule, each.name)
    return each.check(value, text=True, scale=each.scale if flume else 1)


def _problem(
    error: ConfigError, where: str, lines: Mapping[str, int], value: Any = None, each: Option | None = None
) -> Problem:
    """Return what is wrong with an option; of a number that has a unit, the meaning."""
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


def _also_wrong(cls: type, chosen: Mapping[str, Any], where: str, lines: Mapping[str, int]) -> list[Problem]:
    """What the class itself has to say of the options that are right so far, with some word for each missing one."""
    texts = [name for name, each in options_of(cls).items() if each.kind is str and each.default is ...]
    found: list[Problem] = []
    for word in ("word", "http://word") if texts else ("",):
        try:
            _made(cls, {**dict.fromkeys(texts, word), **chosen}, where, lines)
        except AgentConfigError as error:
            found += [problem for problem in error.problems if problem.key in chosen and problem not in found]
        except (TypeError, ValueError, LookupError):
            continue  # it cannot be asked without what is missing
    return found


def _unknown(key: str, options: Mapping[str, Option], beside: Sequence[str]) -> ConfigError:
    for name, each in options.items():
        if key == flume_name(each):
            return ConfigError(key, f"is what Flume calls it; here it is {name!r}", key)
    return unknown(key, [*options, *difflib.get_close_matches(key, beside, 1)])


def _got(error: ConfigError) -> str:
    """The value, unless there is none, it is secret, or the rule names it."""
    value = error.value
    told = isinstance(value, str) and value and repr(value) in error.rule
    return "" if value is None or value is error.name or told else f", got {shown(value)}"


def shown(value: Any) -> str:
    """A value as it stands in a file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def typed(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of a properties file as what stands in a TOML file: numbers, flags, lists and tables.

    What has not the right form stays a text, so that :func:`read_options` says what is wrong with it; so does one with
    a reference that is not resolved, ``${env:X}``.
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
    """Which known name was meant, for the end of a message."""
    names = list(known)
    found = difflib.get_close_matches(name, names, 1, 0.6)
    if found:
        return f"; did you mean {found[0]!r}?"
    return f"; there is only {names[0]}" if len(names) == 1 else f"; there are {', '.join(sorted(names)) or 'none'}"


def missing_file(name: str, path: Path | str | None) -> Iterator[ConfigError]:
    """For a file that an option names, and nobody can read."""
    try:
        if path is not None:
            with open(path, "rb"):  # noqa: PTH123  # a text may stand there, too
                pass
    except OSError as error:
        yield ConfigError(name, f"cannot be read: {error.strerror}", str(path))
