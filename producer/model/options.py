"""Options: declare each option once, check its values, and describe its rule.

A dataclass declares an option as a field made by :func:`option`; its annotation is the type of the value. A table of
names that are not fields holds :class:`Option` objects.

``check`` accepts Python values. With ``text`` it also accepts those of a file: ``"500"``, ``"64m"``, ``"yes"``,
``"a=1,b=2"``, a list as words, a choice in any case, and empty text for None.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal

from ..text.migration_hints import hint
from ..text.printable import without_userinfo
from .errors import ConfigError

_MOST_INTEGER = 2**63 - 1
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_tables: dict[type, Mapping[str, Option]] = {}
#: Names of a kind of value, singular and plural.
_NAMES: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "text"),
    Path: ("a path of this machine", "paths"),
}


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of one option. The other fields are the parameters of :func:`option`.

    :ivar name: the option's name.
    :ivar kind: the type of its value: a number, text, ``Literal``, ``tuple[X, ...]``, ``Mapping[str, X]``, a class.
    :ivar default: the default; ``...`` if the option is required.
    """

    doc: str = ""
    name: str = ""
    kind: Any = str
    default: Any = None
    least: float | None = None
    most: float | None = None
    choices: tuple[Any, ...] = ()
    unit: str | None = None
    secret: bool = False
    flume: str | None = None
    scale: float = 1

    def check(self, value: Any, *, name: str = "", text: bool = False, scale: float = 1) -> Any:
        """Return the value converted to this option's kind.

        :param name: the name for the message, if not the option's own.
        :param text: True for a value from a file.
        :param scale: the factor of the file's numbers, for the limits in the message.
        :raises ConfigError: the value breaks the rule.
        """
        try:
            return _converted(self, self.kind, value, text)
        except _WrongError as error:
            rule = f"must be {self.words(error.kind, text=text, scale=scale)}"
            name = name or self.name
            if self.secret:
                raise ConfigError(name, f"{rule}; the value is secret, and not shown", name) from None
            raise ConfigError(name, rule, _in_file(error.value, scale)) from None

    def words(self, kind: Any = None, *, text: bool = False, scale: float = 1) -> str:
        """Return the rule in words: what a value must be.

        :param kind: a part of the kind, such as the items of a list; None for the kind.
        :param text: True for values from a file, which has no None.
        :param scale: the factor of the file's numbers.
        """
        kind = self.kind if kind is None else kind
        if chosen := _choices(self, kind):
            return f"one of {', '.join(map(str, chosen))}"
        if alternatives := _alternatives(kind):
            found = [f'"{each}"' for kind in alternatives for each in _choices(self, kind)]
            found += [self.words(kind, text=text, scale=scale) for kind in alternatives if not _choices(self, kind)]
            found = ["None", *found] if types.NoneType in typing.get_args(kind) and not text else found
            return " or ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)
        return _words_of_container(kind) or self._words_of_one(kind, text, scale)

    def _words_of_one(self, kind: Any, text: bool, scale: float) -> str:
        if kind is str and self.least:
            return "text that is not empty"
        if kind not in (int, float):
            return _NAMES[kind][0] if kind in _NAMES else f"an instance of {getattr(kind, '__name__', kind)}"
        unit = f" of {self.unit}" if self.unit else ""
        written = " (also as 64k, 4m or 2g, in powers of 1024)" if text and self.unit == "bytes" else ""
        least, most = (_in_file(each, scale) for each in (self.least, self.most))
        if least is not None and most is not None:
            return f"{_NAMES[kind][0]}{unit}{written} from {least} to {most}"
        limit = f", at least {least}" if least is not None else "" if most is None else f", at most {most}"
        return f"{_NAMES[kind][0]}{unit}{written}{limit}"


def option(
    default: Any = MISSING,
    *,
    doc: str = "",
    flume: str | None = None,
    scale: float = 1,
    least: float | None = None,
    most: float | None = None,
    choices: Iterable[Any] = (),
    secret: bool = False,
    unit: str | None = None,
    factory: Callable[[], Any] | None = None,
) -> Any:
    """Return a dataclass field that declares an option.

    :param default: the default; without one the option is required.
    :param doc: the meaning, with the unit; may be in the class's docstring instead.
    :param flume: Flume's key, if not the name in camelCase.
    :param scale: the factor from Flume's number to this one: 0.001 for milliseconds.
    :param least: the lowest number, or the fewest characters of text.
    :param most: the highest number.
    :param choices: the permitted values; not needed for a ``Literal``.
    :param secret: True to show the value neither in messages nor in the ``repr`` of the options.
    :param unit: the unit of a number; in a file ``bytes`` may be written as ``64m``.
    :param factory: makes the default.
    """
    rule = Option(
        doc, flume=flume, scale=scale, least=least, most=most, choices=tuple(choices), secret=secret, unit=unit
    )
    if isinstance(default, dict | list):
        factory = default.copy
    if factory is not None:
        return dataclasses.field(default_factory=factory, repr=not secret, metadata={"option": rule})
    return dataclasses.field(default=default, repr=not secret, metadata={"option": rule})


def options_of(cls: type) -> Mapping[str, Option]:
    """Return the options of a dataclass, by name."""
    if cls in _tables:
        return _tables[cls]
    hints, found = typing.get_type_hints(cls), dict[str, Option]()
    for field in dataclasses.fields(cls):
        if "option" in field.metadata:
            default = field.default if field.default_factory is MISSING else field.default_factory()
            of_field = {"kind": hints[field.name], "default": ... if default is MISSING else default}
            found[field.name] = dataclasses.replace(field.metadata["option"], name=field.name, **of_field)
    return _tables.setdefault(cls, types.MappingProxyType(found))


def table(**options: Option) -> Mapping[str, Option]:
    """Return named options."""
    return {name: dataclasses.replace(each, name=name) for name, each in options.items()}


def check_unset(config: Any, names: Iterable[str], rule: str) -> None:
    """Check that options have their defaults.

    :param rule: the rule that another value breaks.
    :raises ConfigError: one has another value.
    """
    known = options_of(type(config))
    for name in names:
        if (value := getattr(config, name)) != known[name].default:
            raise ConfigError(name, rule, value)


def check_all(config: Any, prefix: str = "") -> None:
    """Check every option of an instance, as Python values.

    :param prefix: the prefix of names in messages.
    :raises ConfigError: a value breaks its rule.
    """
    for name, each in options_of(type(config)).items():
        each.check(getattr(config, name), name=prefix + name)


def unknown(name: str, known: Iterable[str], foreign: Mapping[str, str] = {}) -> ConfigError:
    """Return the error for an unknown option, with the nearest names.

    :param foreign: hints for names of other producers.
    """
    return ConfigError(name, f"unknown option; {hint(name, known, foreign)}", name)


class _WrongError(ValueError):
    """The part of a value that breaks a rule.

    :ivar kind: the kind that the part should have.
    """

    def __init__(self, kind: Any, value: Any) -> None:
        super().__init__(kind, value)
        self.kind, self.value = kind, value


def _alternatives(kind: Any) -> list[Any]:
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return []
    return [each for each in typing.get_args(kind) if each is not types.NoneType]


def _choices(rule: Option, kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    return rule.choices if kind in (int, str) else ()


def _words_of_container(kind: Any) -> str:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        names = [_name_of_items(each) for each in _alternatives(inner[0]) or inner[:1]]
        return f"a list of {' and '.join(names)}"
    if _is_mapping(origin):
        return f"a table of text to {_NAMES[inner[1]][1] if inner[1] in _NAMES else 'tables or lists'}"
    return "callable with one argument" if origin is Callable else ""


def _name_of_items(kind: Any) -> str:
    return "tables" if _is_mapping(typing.get_origin(kind)) else _NAMES.get(kind, ("", "values"))[1]


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _in_file(value: Any, scale: float) -> Any:
    """Return a number scaled as in the file; other values unchanged."""
    if scale == 1 or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return value
    number = round(value / scale, 9)
    return int(number) if number == int(number) else number


def _converted(rule: Option, kind: Any, value: Any, text: bool) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if _alternatives(kind):
        return _of_union(rule, kind, value, text)
    if chosen := _choices(rule, kind):
        return _chosen(rule, kind, chosen, value, text)
    if origin is tuple or _is_mapping(origin):
        with contextlib.suppress(_WrongError):
            return _of_items(rule, origin, inner, value, text)
        raise _WrongError(kind, value)
    convert = _CONVERSIONS.get(kind)
    if convert is None:
        expected = Callable if origin is Callable else kind
        if kind is not Any and not isinstance(value, expected):
            raise _WrongError(kind, value)
        return value
    return convert(rule, value, text)


def _of_items(rule: Option, origin: Any, inner: tuple[Any, ...], value: Any, text: bool) -> Any:
    if origin is tuple:
        items = value.split() if text and isinstance(value, str) else value
        if isinstance(items, list | tuple):
            return tuple(_converted(rule, inner[0], item, text) for item in items)
        raise _WrongError(inner, value)
    pairs = _pairs(value) if text and isinstance(value, str) else value
    if isinstance(pairs, Mapping):
        return {_text(rule, name, text): _converted(rule, inner[1], item, text) for name, item in pairs.items()}
    raise _WrongError(inner, value)


def _of_union(rule: Option, kind: Any, value: Any, text: bool) -> Any:
    if types.NoneType in typing.get_args(kind) and (value is None or (text and value == "")):
        return None
    for each in _alternatives(kind):
        with contextlib.suppress(_WrongError):
            return _converted(rule, each, value, text)
    raise _WrongError(kind, value)


def _chosen(rule: Option, kind: Any, chosen: tuple[Any, ...], value: Any, text: bool) -> Any:
    if text and isinstance(chosen[0], int):
        value = _integer(rule, value, text)
    written = value.strip().lower() if text and isinstance(value, str) else value
    for each in chosen:
        same = each.lower() if text and isinstance(each, str) else each
        if type(written) is type(same) and written == same:
            return each
    raise _WrongError(kind, value)


def _pairs(text: str) -> Mapping[str, str] | None:
    """Return ``name=value,name=value`` as a mapping; None for other text."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return {name.strip(): value.strip() for name, sign, value in pairs} if all(sign for _, sign, _ in pairs) else None


def _integer(rule: Option, value: Any, text: bool) -> int:
    number = _of_text(rule, value) if text and isinstance(value, str) else value
    if text and isinstance(number, float) and number.is_integer():
        number = int(number)
    if not isinstance(number, int) or isinstance(number, bool) or not -_MOST_INTEGER <= number <= _MOST_INTEGER:
        raise _WrongError(int, value)
    return int(_within(rule, int, number, value))


def _of_text(rule: Option, value: str) -> int | None:
    written = value.strip().lower()
    digits = written.rstrip("kmgib") if rule.unit == "bytes" else written
    try:
        return int(digits) * _BYTES[written[len(digits) :].strip()]
    except (ValueError, KeyError):
        return None


def _number(rule: Option, value: Any, text: bool) -> float:
    number = value
    if text:
        with contextlib.suppress(TypeError, ValueError):
            number = value if isinstance(value, bool) else float(value)
    if not isinstance(number, int | float) or isinstance(number, bool) or math.isnan(number):
        raise _WrongError(float, value)
    return _within(rule, float, number, value)


def _within(rule: Option, kind: type, number: float, value: Any) -> float:
    if (rule.least is None or number >= rule.least) and (rule.most is None or number <= rule.most):
        return number
    raise _WrongError(kind, value)


def _flag(_rule: Option, value: Any, text: bool) -> bool:
    written = str(value).strip().lower()
    if isinstance(value, bool) or (text and written in _TRUE + _FALSE):
        return written in _TRUE
    raise _WrongError(bool, value)


def _text(rule: Option, value: Any, text: bool) -> str:
    if not isinstance(value, str) or (rule.least is not None and len(value) < rule.least):
        raise _WrongError(str, value)
    if text:
        return _Address(value) if without_userinfo(value) != value else value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _WrongError(str, value) from None
    return value


class _Address(str):
    """Text with a URL that contains a user or a password; its ``repr`` hides them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(without_userinfo(str(self)))


def _path(_rule: Option, value: Any, _text: bool) -> Path:
    if isinstance(value, str | Path) and str(value) and not _URL.match(str(value)):
        return Path(value).expanduser()
    raise _WrongError(Path, value)


_CONVERSIONS: dict[Any, Callable[[Option, Any, bool], Any]] = {
    int: _integer,
    float: _number,
    bool: _flag,
    str: _text,
    Path: _path,
}
