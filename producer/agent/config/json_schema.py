"""Build the JSON Schema of an agent's TOML file from the option declarations, for completion and checks in editors.

The schema refuses names, types and ranges that the agent would refuse. A text with ``${env:X}`` may replace any value.
Only ``producer agent check`` checks references between components and rules among options.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...model.options import Option, options_of
from .cases import CASE_KEYS, EXPECT_KEYS
from .explain import summary_of
from .limits import AgentOptions
from .registry import BUILT_IN, class_of, plugged_in

_REFERENCE = r"\$\{(env|file):"
_TEXT = {"type": "string"}
_NAMES = {"type": ["array", "string"], "items": _TEXT}
#: Patterns of text that stands for a number or a boolean, by kind; ``bytes`` have units.
_WRITTEN: dict[Any, str] = {
    int: r"^\s*[-+]?[0-9]+\s*$",
    float: r"^\s*[-+]?[0-9.]+([eE][-+]?[0-9]+)?\s*$",
    bool: r"^\s*(true|false|yes|no|on|off|1|0)\s*$",
    "bytes": r"^\s*[0-9]+\s*([kKmMgG]([iI][bB])?)?\s*$",
}
#: The keys of a component that are not options, and the required ones of them, by table.
_BESIDE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sources": (
        {
            "channels": {**_NAMES, "description": "the channels to write to"},
            "interceptors": {"type": "array", "items": {"$ref": "#/$defs/interceptors"}},
            "selector": {"$ref": "#/$defs/selectors"},
        },
        ["channels"],
    ),
    "channels": ({}, []),
    "sinks": (
        {
            "channel": {**_TEXT, "description": "the channel to take from"},
            "dead_letters": {**_TEXT, "description": "the channel for events that the destination refuses permanently"},
        },
        ["channel"],
    ),
    "processors": ({"sinks": {**_NAMES, "description": "the sinks, which share a channel"}}, ["sinks"]),
    "interceptors": ({"name": {**_TEXT, "description": "the name, if it differs from the type"}}, []),
    "selectors": ({}, []),
}


def json_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12. A type whose package is not installed may have any options."""
    tables = {
        table: "processors" if table == "groups" else table for table in ("sources", "channels", "sinks", "groups")
    }
    components = {
        table: {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{kind}"}} for table, kind in tables.items()
    }
    definitions: dict[str, Any] = {}
    for kind, known in BUILT_IN.items():
        names = sorted({*known, *plugged_in(kind)})
        definitions[kind] = _one_of(kind, names)
        definitions |= {f"{kind}.{name}": _component(kind, name) for name in names}
    agent = {name: _described(each) for name, each in options_of(AgentOptions).items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A configuration of producer agent",
        **_closed({"agent": _closed(agent), **components, "tests": {"type": "array", "items": _tests()}}),
        "$defs": definitions,
    }


def _tests() -> dict[str, Any]:
    expected, case = (
        {key: {**form, "description": text} for key, (form, text) in keys.items()} for keys in (EXPECT_KEYS, CASE_KEYS)
    )
    case["expect"]["items"] = _closed(expected)
    return _closed(case, ["input", "expect"])


def _one_of(kind: str, names: Iterable[str]) -> dict[str, Any]:
    """Return the schema of a component, chosen by its type.

    The conditions make errors precise. Editors that ignore conditions complete from ``anyOf``, which refuses nothing.
    """
    references = {name: {"$ref": f"#/$defs/{kind}.{name}"} for name in names}
    return {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"enum": list(references)}},
        "allOf": [
            {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": each}
            for name, each in references.items()
        ],
        "anyOf": [*references.values(), {}],
    }


def _closed(properties: Mapping[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _component(kind: str, name: str) -> dict[str, Any]:
    beside, required = _BESIDE[kind]
    own = {"type": {"const": name}, **beside}
    try:
        cls = class_of(kind, name)
    except (ImportError, LookupError):
        return {"type": "object", "properties": own, "required": ["type", *required]}
    options = options_of(cls.Options)
    needed = [option.name for option in options.values() if option.default is ...]
    described = {option.name: _described(option) for option in options.values()}
    closed = _closed({**described, **own}, ["type", *required, *needed])
    return {"description": summary_of(cls), **closed}


def _described(option: Option) -> dict[str, Any]:
    default = list(option.default) if isinstance(option.default, tuple) else option.default
    shown = {} if default is ... or default is None or isinstance(default, Path) else {"default": default}
    return {**_value(option, option.kind), **shown, "description": f"{option.doc}; {option.words(text=True)}"}


def _value(option: Option, kind: Any) -> dict[str, Any]:
    """Return the forms that a value may have. A keyword such as ``minimum`` applies only to values of its type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        forms = [_value(option, each) for each in inner if each is not types.NoneType]
        optional = [{"const": ""}] if types.NoneType in inner else []
        return forms[0] if forms == [_TEXT] else {"anyOf": [*forms, *optional]}
    if origin is typing.Literal or (option.choices and kind is str):
        return {"anyOf": [{"enum": list(inner or option.choices)}, {"type": "string", "pattern": _REFERENCE}]}
    if origin is tuple:
        return {"type": ["array", "string"], "items": _value(option, inner[0])}
    if origin is not None and issubclass(origin, Mapping):
        values = _value(option, inner[1])
        return {"type": ["object", "string"], "additionalProperties": values, "pattern": rf"=|{_REFERENCE}"}
    if kind in (int, float, bool):
        return _written(option, kind)
    return _TEXT if kind in (str, Path) else {}


def _written(option: Option, kind: type) -> dict[str, Any]:
    limits = {"minimum": option.least, "maximum": option.most} if kind is not bool else {"minimum": 0, "maximum": 1}
    names = {int: ["integer", "string"], float: ["number", "string"], bool: ["boolean", "integer", "string"]}
    pattern = _WRITTEN["bytes" if option.unit == "bytes" and kind is int else kind]
    set_limits = {name: limit for name, limit in limits.items() if limit is not None}
    return {"type": names[kind], **set_limits, "pattern": f"{pattern}|{_REFERENCE}"}
