"""Options of components, declared once: types, defaults, rules and Flume's names for them.

A component's ``Options`` is a frozen dataclass whose fields are made by :func:`option`. :func:`read_options` makes one
of the values of a configuration, TOML's typed ones or the texts of a properties file, and reports everything that is
wrong with them at once, with the nearest right name for a wrong one.

It is one long file because a rule is declared, applied and told in the same terms, from the field to the sentence.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from ...model.errors import ConfigError, ProducerError

_T = TypeVar("_T")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_SHELLS = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
#: Behind a password, which may have any character, the last ``@``; a path made of a URL has one slash only.
_USERINFO = re.compile(r"(:/+)(?:[^\s/'\"@:]*:\S*|[^\s/'\"]+)@")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
#: Characters of a problem that are shown: a value may be a whole file that got into one.
_MOST_SHOWN = 2000
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def option(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    flume: str | None = None,
    scale: float = 1,
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] | None = None,
    secret: bool = False,
    unit: Literal["bytes"] | None = None,
) -> Any:
    """A field of ``Options``.

    :param default: without one the option is required.
    :param doc: what it means, with its unit; shown by ``producer agent explain``.
    :param flume: Flume's key for it, if that differs from the name in camelCase.
    :param scale: what Flume's number is multiplied by: 0.001 for its milliseconds.
    :param least: the lowest number.
    :param most: the highest.
    :param choices: the texts that are allowed.
    :param secret: never shown, and no part of the options' ``repr``.
    :param unit: ``bytes`` may be written as ``64m``; other numbers may not.
    """
    rules = {
        "doc": doc,
        "flume": flume,
        "scale": scale,
        "least": least,
        "most": most,
        "choices": tuple(choices) if choices else None,
        "secret": secret,
        "unit": unit,
    }
    if isinstance(default, dict | list):
        copied = default
        return dataclasses.field(default_factory=lambda: type(copied)(copied), repr=not secret, metadata=rules)
    return dataclasses.field(default=default, repr=not secret, metadata=rules)


def without_userinfo(text: str) -> str:
    """A text in which no URL tells a user or a password."""
    return _USERINFO.sub(r"\1***@", text)


def words_of(error: BaseException) -> str:
    """What it says, as logs and pages show it: libraries name addresses as they were given them."""
    return without_userinfo(str(error))


class _Address(str):
    """A text that tells a user or a password; its ``repr`` does not, and so that of options neither."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(without_userinfo(str(self)))


class _PublicError(ValueError):
    """What is wrong with a value that is secret, in words that do not show it."""


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


def fields_of(cls: type) -> dict[str, dataclasses.Field[Any]]:
    """The options of a class, by name."""
    return {field.name: field for field in dataclasses.fields(cls) if "doc" in field.metadata}


def flume_name(field: dataclasses.Field[Any]) -> str:
    """Flume's key of an option."""
    first, *rest = field.name.split("_")
    return field.metadata["flume"] or first + "".join(map(str.capitalize, rest))


def from_flume(cls: type, values: Mapping[str, str]) -> dict[str, Any]:
    """Flume's keys and texts as our names and values; keys that are not known stay as they are.

    Keys with a dot behind a known one, such as ``headers.g1.k``, become a mapping. A class may have a method
    ``translate_flume`` for what is made otherwise; it is given the texts first.
    """
    translate: Callable[[Mapping[str, str]], Mapping[str, Any]] | None = getattr(cls, "translate_flume", None)
    if translate is not None:
        values = translate(values)
    known = {flume_name(field): field for field in fields_of(cls).values()}
    found: dict[str, Any] = {}
    for key, value in values.items():
        field, parent = known.get(key), _parent(key, known)
        if field is not None:
            found[field.name] = _scaled(value, field.metadata["scale"])
        elif parent and isinstance(found.setdefault(known[parent].name, {}), dict):
            found[known[parent].name][key[len(parent) + 1 :]] = value
        else:
            found[key] = value
    return found


def _parent(key: str, known: typing.Iterable[str]) -> str:
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
    beside: typing.Iterable[str] = (),
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
    fields, hints = fields_of(cls), typing.get_type_hints(cls)
    chosen: dict[str, Any] = {}
    for key, value in values.items():
        field = fields.get(key)
        if field is None:
            problems.append(Problem(where, key, _unknown(key, fields, beside), lines.get(key)))
            continue
        try:
            chosen[key] = _checked(value, hints[key], field, field.metadata["scale"] if flume else 1)
        except ValueError as error:
            hidden = field.metadata["secret"] and not isinstance(error, _PublicError)
            message = "has a wrong value, which is not shown" if hidden else f"{error}{_meaning(value, field)}"
            problems.append(Problem(where, key, message, lines.get(key)))
    for name, field in fields.items():
        if _is_required(cls, name) and name not in values:
            problems.append(Problem(where, name, f"is missing: {field.metadata['doc']}"))
    if problems:
        raise AgentConfigError([*problems, *_also_wrong(cls, chosen, where, lines)])
    return _made(cls, chosen, where, lines)


def _made(cls: type[_T], chosen: Mapping[str, Any], where: str, lines: Mapping[str, int]) -> _T:
    try:
        return cls(**chosen)
    except ConfigError as error:
        field = fields_of(cls).get(error.name)
        message = error.rule if field is not None and field.metadata["secret"] else f"{error.rule}{_got(error)}"
        raise AgentConfigError([Problem(where, error.name, message, lines.get(error.name))]) from error


def _also_wrong(cls: type, chosen: Mapping[str, Any], where: str, lines: Mapping[str, int]) -> list[Problem]:
    """What the class itself has to say of the options that are right so far, with some word for each missing one."""
    texts = [name for name, hint in typing.get_type_hints(cls).items() if hint is str and _is_required(cls, name)]
    found: list[Problem] = []
    for word in ("word", "http://word") if texts else ("",):
        try:
            _made(cls, {**dict.fromkeys(texts, word), **chosen}, where, lines)
        except AgentConfigError as error:
            found += [problem for problem in error.problems if problem.key in chosen and problem not in found]
        except (TypeError, ValueError, LookupError):
            continue  # it cannot be asked without what is missing
    return found


def _is_required(cls: type, name: str) -> bool:
    field = fields_of(cls).get(name)
    return field is not None and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _unknown(key: str, fields: Mapping[str, dataclasses.Field[Any]], beside: typing.Iterable[str]) -> str:
    for name, field in fields.items():
        if key == flume_name(field):
            return f"is what Flume calls it; here it is {name!r}"
    meant = difflib.get_close_matches(key, [*fields, *beside], 1, 0.6)
    return f"no such option{nearest(key, meant or fields)}"


def _meaning(value: Any, field: dataclasses.Field[Any]) -> str:
    """Of a number that was written with a unit: in which one it is."""
    unitless = field.metadata["unit"] is None and isinstance(value, str) and value[:1].isdigit()
    return f"; it is: {field.metadata['doc']}" if unitless and not field.metadata["choices"] else ""


def _got(error: ConfigError) -> str:
    """The value, unless there is none, or the rule names it."""
    if error.value is None or (isinstance(error.value, str) and error.value and repr(error.value) in error.rule):
        return ""
    return f", got {shown(error.value)}"


def shown(value: Any) -> str:
    """A value as it stands in a file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def typed(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The texts of a properties file as what stands in a TOML file: numbers, flags, lists and tables.

    What has not the right form stays a text, so that :func:`read_options` says what is wrong with it; so does one with
    a reference that is not resolved, ``${env:X}``.
    """
    hints, fields = typing.get_type_hints(cls), fields_of(cls)
    return {
        key: _plain(value, hints[key], fields[key].metadata["unit"]) if key in fields else value
        for key, value in values.items()
    }


def _plain(value: Any, hint: Any, unit: str | None) -> Any:
    if hint is Path or "${" in str(value):
        return value
    try:
        converted = _converted(value, hint, unit)
    except ValueError:
        return value
    if isinstance(converted, tuple):
        return value.split() if isinstance(value, str) else list(converted)
    if isinstance(converted, Mapping):
        inner = typing.get_args(hint)[1]
        return {name: _plain(item, inner, unit) for name, item in value.items()}
    return value if isinstance(converted, Path) or converted is None else converted


def nearest(name: str, known: typing.Iterable[str]) -> str:
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


def _checked(value: Any, hint: Any, field: dataclasses.Field[Any], scale: float) -> Any:
    rules = field.metadata
    _check_is_no_shells(value, rules["secret"])
    value = _converted(value, hint, rules["unit"])
    if rules["choices"] and value not in rules["choices"]:
        raise ValueError(f"must be one of {', '.join(rules['choices'])}, got {value!r}")
    if rules["least"] is not None and value is not None and value < rules["least"]:
        raise ValueError(f"must be at least {_number_in(rules['least'], scale)}, got {_number_in(value, scale)}")
    if rules["most"] is not None and value is not None and value > rules["most"]:
        raise ValueError(f"must be at most {_number_in(rules['most'], scale)}, got {_number_in(value, scale)}")
    return value


def _number_in(value: float, scale: float) -> str:
    """As people write it, in the unit of the file."""
    number = value if scale == 1 else round(value / scale, 9)
    return str(int(number) if math.isfinite(number) and number == int(number) else number)


def _check_is_no_shells(value: Any, secret: bool) -> None:
    """A variable as a shell has it would be a key that nobody knows; elsewhere it may be meant."""
    found = _SHELLS.fullmatch(value) if secret and isinstance(value, str) else None
    if found is not None:
        raise _PublicError(f"is a shell's variable, which means nothing here; did you mean ${{env:{found[1]}}}?")


def _converted(value: Any, hint: Any, unit: str | None = None) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _of_union(value, arguments, unit)
    if origin is tuple:
        items = value.split() if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(f"must be a list, got {shown(value)}")
        return tuple(_converted(item, arguments[0], unit) for item in items)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ValueError(f"must be a table, got {shown(value)}")
        return {str(name): _converted(item, arguments[1], unit) for name, item in value.items()}
    if hint is int:
        return _integer(value, unit)
    return _CONVERSIONS.get(hint, lambda each: each)(value)


def _of_union(value: Any, arguments: Sequence[Any], unit: str | None) -> Any:
    if value is None or (value == "" and types.NoneType in arguments):
        return None
    failures: list[str] = []
    for hint in arguments:
        if hint is types.NoneType:
            continue
        try:
            return _converted(value, hint, unit)
        except ValueError as error:
            failures.append(str(error))
    raise ValueError(failures[0])


def _integer(value: Any, unit: str | None) -> int:
    if isinstance(value, str):
        text = value.strip().lower()
        digits = text.rstrip("kmgib") if unit == "bytes" else text
        factor = _UNITS.get(text[len(digits) :].strip())
        try:
            if factor is not None:
                return int(digits) * factor
        except ValueError:
            pass
    elif isinstance(value, int) and not isinstance(value, bool):
        return value
    elif isinstance(value, float) and value.is_integer():
        return int(value)
    rule = "a whole number of bytes, such as 65536 or 64k (k, m and g are powers of 1024)" if unit else "a whole number"
    raise ValueError(f"must be {rule}, got {shown(value)}")


def _number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        more = ", without a unit" if isinstance(value, str) and value[:1].isdigit() else ""
        raise ValueError(f"must be a number{more}, got {shown(value)}")
    return number


def _flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE + _FALSE:
        return text in _TRUE
    raise ValueError(f"must be true or false, got {shown(value)}")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return _Address(value) if _USERINFO.search(value) else value
    raise ValueError(f"must be text, got {shown(value)}")


def _path(value: Any) -> Path:
    if isinstance(value, str) and _URL.match(value):
        raise ValueError(f"must be a path of this machine, got the address {shown(value)}")
    if isinstance(value, str | Path) and str(value):
        return Path(value).expanduser()
    raise ValueError(f"must be a path, got {shown(value)}")


_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    float: _number,
    bool: _flag,
    str: _text,
    Path: _path,
}
