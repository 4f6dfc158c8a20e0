"""Read Flume's configurations: properties files with one or several agents, whose keys begin with the agent's name.

Flume logs unknown types and options, and ignores them. Here they are problems, reported before anything starts; unknown
options can be ignored on request. Other names and units are translated by the component's own options
(:func:`~..options.from_flume`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...model.options import options_of
from .file_bytes import read_file
from .flume_keys import hint_of
from .model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from .options import AgentConfigError, Problem, flume_name, from_flume, nearest, typed
from .properties_text import Properties, parse_properties
from .references import References
from .registry import canonical, class_of

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_KINDS = ("sources", "channels", "sinks", "sinkgroups")
_TOML = re.compile(r"^[ \t]*\[\[?(?:agent|sources|channels|sinks|groups)[\].]", re.MULTILINE)
_MIXED_UP = {
    ("sources", "channel"): "; a source has 'channels'",
    ("sinks", "channels"): "; a sink has one 'channel'",
}
_OWN = {
    "sources": ("type", "channels", "interceptors", "selector"),
    "channels": ("type",),
    "sinks": ("type", "channel"),
    "sinkgroups": ("sinks", "processor"),
}


def read_properties(
    path: Path, name: str | None = None, *, ignore_unknown: bool = False, references: bool = True
) -> AgentConfig:
    """Read the configuration of one agent in a file.

    :param name: the agent's name; None if the file has only one agent.
    :param ignore_unknown: True to ignore unknown options; ``notes`` lists them.
    :param references: True to replace ``${env:X}`` and ``${file:/path}``; False to keep them.
    :raises AgentConfigError: if the file cannot be read, or has no such agent. Other problems are in ``problems``.
    """
    raw = read_file(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # Java reads these files as Latin-1
    return parse_flume(text, name, str(path), ignore_unknown=ignore_unknown, references=references)


def parse_flume(
    text: str,
    name: str | None = None,
    origin: str = "configuration",
    *,
    ignore_unknown: bool = False,
    references: bool = True,
) -> AgentConfig:
    """Read the configuration of one agent in a text, as :func:`read_properties` does for a file."""
    if found := _TOML.search(text):
        message = "this is the agent's TOML, not a properties file of Flume's: use --config"
        raise AgentConfigError([Problem("", "", message, text.count("\n", 0, found.start()) + 1)], origin)
    if "\0" in text:
        message = "contains a NUL character: if the file is UTF-16, save it as UTF-8"
        raise AgentConfigError([Problem("", "", message, text.count("\n", 0, text.index("\0")) + 1)], origin)
    properties = parse_properties(text, origin)
    agents = list(dict.fromkeys(key.partition(".")[0] for key in properties.values if "." in key))
    if name is None and len(agents) == 1:
        name = agents[0]
    if name is None:
        message = f"has the agents {', '.join(agents)}: say which one (--name)" if agents else "has no agent"
        raise AgentConfigError([Problem("", "", message)], origin)
    if name not in agents:
        raise AgentConfigError([Problem("", "", f"has no agent {name!r}{nearest(name, agents)}")], origin)
    return _Reader(properties, name, origin, ignore_unknown, references).read()


class _Reader:
    """Builds the configuration, collecting problems on the way."""

    def __init__(self, properties: Properties, name: str, origin: str, ignore_unknown: bool, references: bool) -> None:
        self._name, self._origin = name, origin
        self._ignore_unknown, self._references = ignore_unknown, references
        self._problems: list[Problem] = []
        self._known = References()
        self._notes: list[str] = []
        prefix = f"{name}."
        mine = {key.removeprefix(prefix): key for key in properties.values if key.startswith(prefix)}
        self._values = {short: properties.values[key] for short, key in mine.items()}
        self._lines = {short: properties.lines[key] for short, key in mine.items()}
        for key, line in properties.repeated.items():
            if key.startswith(prefix):
                self._notes.append(
                    f"line {line}: {key} is repeated in line {properties.lines[key]}, whose value counts"
                )

    def read(self) -> AgentConfig:
        names = {kind: self._values.get(kind, "").split() for kind in _KINDS}
        self._check_keys(names)
        return AgentConfig(
            self._name,
            {name: self._source(name) for name in names["sources"]},
            {name: self._channel(name) for name in names["channels"]},
            {name: self._sink(name) for name in names["sinks"]},
            {name: self._group(name) for name in names["sinkgroups"]},
            state=Path(f"loghub-agent-{_NOT_IN_NAMES.sub('_', self._name)}"),  # one for each agent of the file
            origin=self._origin,
            problems=tuple(self._problems),
            hidden=self._known.hidden,
            notes=tuple(self._notes),
        )

    def _source(self, name: str) -> SourceConfig:
        where = f"sources.{name}"
        values = self._below(where)
        interceptors = self._resolved(f"{where}.interceptors", values.get("interceptors", "")).split()
        return SourceConfig(
            **self._component("sources", where, name),
            channels=self._names(f"{where}.{self._meant(where, 'channels', 'channel')}"),
            interceptors=tuple(
                ComponentConfig(**self._component("interceptors", f"{where}.interceptors.{each}", each))
                for each in interceptors
            ),
            selector=ComponentConfig(**self._component("selectors", f"{where}.selector", "selector", "replicating")),
        )

    def _channel(self, name: str) -> ComponentConfig:
        return ComponentConfig(**self._component("channels", f"channels.{name}", name))

    def _sink(self, name: str) -> SinkConfig:
        key = f"sinks.{name}.{self._meant(f'sinks.{name}', 'channel', 'channels')}"
        channel = self._resolved(key, self._values.get(key, ""))
        return SinkConfig(**self._component("sinks", f"sinks.{name}", name), channel=channel)

    def _group(self, name: str) -> GroupConfig:
        where = f"sinkgroups.{name}"
        return GroupConfig(
            **self._component("processors", f"{where}.processor", name, "default"), sinks=self._names(f"{where}.sinks")
        )

    def _component(self, kind: str, where: str, name: str, default: str = "") -> dict[str, Any]:
        """Return the fields that all components have.

        :param kind: the kind in the registry.
        :param where: the prefix of the keys.
        :param default: the type to use if none is given.
        """
        values = self._below(where)
        given = self._resolved(f"{where}.type", values.pop("type", default))
        if not given:
            self._report(f"{where}.type", "is missing: set it to the component's type", self._first_line(where))
        own = _OWN.get(where.partition(".")[0], ()) if where.count(".") == 1 else ()
        texts = {key: value for key, value in values.items() if key.partition(".")[0] not in own}
        texts = {key: self._resolved(f"{where}.{key}", value) for key, value in texts.items()}
        places = {key: self._lines[f"{where}.{key}"] for key in texts}
        kind_name = canonical(kind, given)
        options, lines = self._translated(kind, kind_name, where, texts, places)
        for key in ("type", "channels", "channel", "sinks"):
            lines[key] = self._lines.get(f"{where}.{key}", self._first_line(where))
        return {
            "name": name,
            "type": kind_name,
            "options": options,
            "lines": {"": self._first_line(where), **places, **lines},
            "keys": self._keys(kind, kind_name, where),
        }

    def _keys(self, kind: str, type_name: str, where: str) -> dict[str, str]:
        """Return the file's keys of all options. A processor's keys are below its group's."""
        group = where.removesuffix(".processor")
        below = "processor." if group != where else ""
        fields = options_of(cls) if (cls := _options_of(kind, type_name)) else {}
        keys = {name: f"{below}{flume_name(field)}" for name, field in fields.items()}
        return {"": f"{self._name}.{group}", "type": f"{below}type", **keys}

    def _translated(
        self, kind: str, type_name: str, where: str, texts: Mapping[str, str], lines: Mapping[str, int]
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Translate Flume's options to ours. Return them, and the line of each."""
        cls = _options_of(kind, type_name)
        if cls is None:
            return dict(texts), dict(lines)
        self._check_scaled(cls, where, texts)
        fields = options_of(cls)
        options = self._ours(cls, where, texts)
        ours = {flume_name(field): name for name, field in fields.items()}
        placed = {
            ours.get(key, ours.get(key.partition(".")[0], key)): line for key, line in reversed(list(lines.items()))
        }
        for key in [key for key in options if key not in fields]:
            self._unknown(f"{where}.{key}", _hint(kind, key, ours), placed.get(key))
            del options[key]
        return typed(cls, options), placed

    def _ours(self, cls: type, where: str, texts: Mapping[str, str]) -> dict[str, Any]:
        try:
            return from_flume(cls, texts)
        except (ValueError, KeyError, re.error) as error:
            self._report(where, f"its values cannot be translated: {error}", self._first_line(where))
            return {}

    def _check_scaled(self, cls: type, where: str, texts: Mapping[str, str]) -> None:
        """Add a note for each unresolved reference whose value the user has to convert to our unit."""
        for field in options_of(cls).values():
            key = flume_name(field)
            if not self._references and field.scale != 1 and "${" in texts.get(key, ""):
                ours = f"{field.name}, times {field.scale}"
                self._notes.append(f"{self._name}.{where}.{key} = {texts[key]} must be converted to the unit of {ours}")

    # -- keys

    def _check_keys(self, names: Mapping[str, list[str]]) -> None:
        """Report keys that belong to no listed component."""
        idle: dict[str, int] = {}
        for key, line in self._lines.items():
            kind, _, rest = key.partition(".")
            name = rest.partition(".")[0]
            if kind == "configfilters":
                self._report(kind, "filters of Flume are not supported; use ${env:…} or ${file:…}", line)
            elif kind not in _KINDS:
                self._unknown(key, nearest(kind, _KINDS), line)
            elif rest and name not in names[kind]:
                idle.setdefault(f"{kind}.{name}", line)
        for what, line in idle.items():
            kind = what.partition(".")[0]
            self._notes.append(f"line {line}: {self._name}.{what} is not listed in {self._name}.{kind}; ignored")

    def _unknown(self, key: str, hint: str, line: int | None) -> None:
        if self._ignore_unknown:
            where = "" if line is None else f"line {line}: "
            self._notes.append(f"{where}{self._name}.{key} is not known; ignored{hint}")
        else:
            self._report(key, f"is not known{hint}", line)

    def _below(self, where: str) -> dict[str, str]:
        prefix = f"{where}."
        return {key.removeprefix(prefix): value for key, value in self._values.items() if key.startswith(prefix)}

    def _first_line(self, where: str) -> int:
        prefix = f"{where}."
        listed = self._lines.get(where.partition(".")[0], 1)
        return min((line for key, line in self._lines.items() if key.startswith(prefix)), default=listed)

    # -- values

    def _meant(self, where: str, right: str, wrong: str) -> str:
        """Return the key to read: the misspelt one if only that is given. Its problem has been reported."""
        reported = not self._ignore_unknown and f"{where}.{right}" not in self._values
        return wrong if reported and f"{where}.{wrong}" in self._values else right

    def _names(self, key: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._resolved(key, self._values.get(key, "")).split()))

    def _resolved(self, key: str, value: str) -> str:
        if not self._references:
            return value
        try:
            return str(self._known.resolve(value))
        except ValueError as error:
            self._report(key, str(error), self._lines.get(key))
            return value

    def _report(self, key: str, message: str, line: int | None) -> None:
        full = f"{self._name}.{key}"
        if all(problem.key != full for problem in self._problems):
            self._problems.append(Problem("", full, message, line))


def _options_of(kind: str, type_name: str) -> type | None:
    """Return the options class of a type. None if there is no such type, which the check of types reports."""
    try:
        return class_of(kind, type_name).Options if type_name else None
    except (LookupError, ImportError):
        return None


def _hint(kind: str, key: str, known: Collection[str]) -> str:
    """Suggest what to write instead of an unknown key."""
    if (kind, key) in _MIXED_UP:
        return _MIXED_UP[kind, key]
    return hint_of(kind, key) or nearest(key, known)
