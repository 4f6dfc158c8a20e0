"""What types there are, and what each is: for people, made of the options' own declarations."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import textwrap
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from .flume_differences import DIFFERENCES
from .options import fields_of, flume_name, nearest
from .registry import BUILT_IN, canonical, class_of, plugged_in

_WIDTH = 100


def overview() -> str:
    """All types, by kind."""
    lines = [f"{kind}: {', '.join(sorted({*known, *plugged_in(kind)}))}" for kind, known in BUILT_IN.items()]
    return "\n".join([*lines, "", "producer agent explain TYPE says more; kind.type where two kinds have it."])


def explain(name: str) -> str:
    """A type's options with their defaults, rules and Flume's names.

    :param name: ours or Flume's; ``sinks.http`` for one kind.
    :raises LookupError: there is none.
    """
    kind, _, rest = name.partition(".")
    asked = {kind: rest} if kind in BUILT_IN and rest else dict.fromkeys(BUILT_IN, name)
    found = [(kind, canonical(kind, each)) for kind, each in asked.items() if _is_known(kind, canonical(kind, each))]
    if not found:
        known = sorted({each for kind in asked for each in (*BUILT_IN[kind], *plugged_in(kind))})
        raise LookupError(f"there is no type {name!r}{nearest(name, known)}")
    return "\n\n".join("\n".join(_told(kind, each)) for kind, each in found)


def _is_known(kind: str, name: str) -> bool:
    return name in BUILT_IN[kind] or name in plugged_in(kind)


def _told(kind: str, name: str) -> Iterator[str]:
    yield f"{kind}.{name}"
    try:
        cls = class_of(kind, name)
    except ImportError as error:
        yield f"  needs {error.name}, which is not installed"
        return
    except LookupError as error:
        yield f"  {error.args[0]}"
        return
    yield from textwrap.wrap(_first_paragraph(cls), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    hints = typing.get_type_hints(cls.Options)
    for field in fields_of(cls.Options).values():
        yield ""
        yield f"  {field.name}: {_type_name(hints[field.name])}, {_default(field)}"
        text = "; ".join(_facts(field))
        yield from textwrap.wrap(text, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    yield from _differences(f"{kind}.{name}")


def _differences(name: str) -> Iterator[str]:
    rows = DIFFERENCES.get(name, ())
    if rows:
        yield ""
        yield "  Otherwise than in Flume:"
    for theirs, ours in rows:
        text = f"Flume: {theirs}; here: {ours}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent="    * ", subsequent_indent="      ")


def _first_paragraph(cls: type) -> str:
    text = inspect.getdoc(cls) or ""
    places = {"See the module": cls.__module__, "See the package": cls.__module__.rpartition(".")[0]}
    for words, place in places.items():
        if text.startswith(words):
            text = sys.modules[place].__doc__ or text
    return " ".join(text.strip().partition("\n\n")[0].split()).replace("``", "")


def _facts(field: dataclasses.Field[Any]) -> Iterable[str]:
    rules = field.metadata
    yield rules["doc"].replace("``", "")
    if rules["choices"]:
        yield f"one of {', '.join(rules['choices'])}"
    if rules["least"] is not None:
        yield f"at least {rules['least']}"
    if rules["most"] is not None:
        yield f"at most {rules['most']}"
    scaled = "" if rules["scale"] == 1 else f", times {rules['scale']}"
    yield f"in a file of Flume's: {flume_name(field)}{scaled}"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"default {field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        return f"default {field.default_factory()!r}"
    return "required"


def _type_name(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    if hint in names:
        return names[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return f"a list of {_type_name(arguments[0])}"
    if origin is not None and isinstance(origin, type) and issubclass(origin, typing.Mapping):
        return f"a table of {_type_name(arguments[1])}"
    if arguments:
        return " or ".join(_type_name(each) for each in arguments if each is not type(None))
    return "a path" if getattr(hint, "__name__", "") == "Path" else getattr(hint, "__name__", str(hint))
