"""Our own format of a configuration, in TOML::

    [agent]
    name = "web"
    state = "/var/lib/loghub-agent"

    [sources.access]
    type = "taildir"
    channels = ["queue"]

    [[sources.access.interceptors]]
    type = "host"

    [sources.access.selector]
    type = "multiplexing"

    [channels.queue]
    type = "file"

    [sinks.store]
    type = "loghub"
    channel = "queue"
    dead_letters = "refused"

    [groups.pair]
    type = "failover"
    sinks = ["store", "spare"]

All other keys of a component are its options. Any text may refer to ``${env:X}`` and ``${file:/path}``.
``[[tests]]`` are read by :mod:`.cases`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...model.options import options_of
from . import toml_lines
from .cases import read_cases
from .file_bytes import read_file
from .limits import AgentOptions, Limits
from .model import AgentConfig, ComponentConfig, GroupConfig, SinkConfig, SourceConfig
from .options import AgentConfigError, Problem, nearest, read_options, shown
from .references import References
from .toml_syntax import limit_line, syntax_problem

_TABLES = ("agent", "sources", "channels", "sinks", "groups", "tests")


def read_toml(path: Path, *, unset: str | None = None) -> AgentConfig:
    """Read the configuration in a file.

    :param unset: the text that replaces references that cannot be resolved; None to report them as problems.
    :raises AgentConfigError: if the file cannot be read or is not TOML. Other problems are in ``problems``.
    """
    raw = read_file(path)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise AgentConfigError([Problem("", "", message, line)], str(path)) from error
    return parse_toml(text, str(path), unset=unset)


def parse_toml(text: str, origin: str = "configuration", *, unset: str | None = None) -> AgentConfig:
    """Read the configuration in a text.

    :param origin: the path of the file, for messages.
    :param unset: as in :func:`read_toml`.
    :raises AgentConfigError: if the text is not TOML.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if deep := toml_lines.DEEP_KEY.search(text):
        problem = Problem("", "", "a name of more than 64 parts", text.count("\n", 0, deep.start()) + 1)
        raise AgentConfigError([problem], origin)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AgentConfigError([syntax_problem(error, text)], origin) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or deeply nested brackets
        raise AgentConfigError([Problem("", "", f"cannot be read: {error}", limit_line(text))], origin) from error
    return _Reader(document, toml_lines.lines_of(text), origin, unset).read()


class _Reader:
    """Builds the configuration, collecting problems on the way."""

    def __init__(
        self, document: Mapping[str, Any], lines: Mapping[toml_lines.Path, int], origin: str, unset: str | None
    ) -> None:
        self._document, self._lines, self._origin = dict(document), dict(lines), origin
        self._problems: list[Problem] = []
        self._references = References(unset)

    def read(self) -> AgentConfig:
        self._check_tables()
        agent = self._table(("agent",), self._document.get("agent", {}))
        own = self._own(agent)
        sources = {name: self._source(name, table) for name, table in self._components("sources")}
        channels = {name: self._channel(name, table) for name, table in self._components("channels")}
        sinks = {name: self._sink(name, table) for name, table in self._components("sinks")}
        groups = {name: self._group(name, table) for name, table in self._components("groups")}
        tests = tuple(read_cases(self._document.get("tests", []), self._report, self._line))
        return AgentConfig(
            own.name,
            sources,
            channels,
            sinks,
            groups,
            tests,
            state=own.state,
            monitoring=str(own.monitoring) or None,
            stop_timeout=own.stop_timeout,
            tap=own.tap,
            limits=Limits(max_memory_bytes=own.max_memory_bytes, max_cpu=own.max_cpu),
            lines={key: self._line(("agent", key)) for key in agent},
            origin=self._origin,
            problems=tuple(self._problems),
            notes=tuple(self._references.notes()),
            hidden=self._references.hidden,
        )

    def _source(self, name: str, table: Mapping[str, Any]) -> SourceConfig:
        path: toml_lines.Path = ("sources", name)
        key = "channel" if "channel" in table and "channels" not in table else "channels"
        if key == "channel":
            self._report((*path, key), 'is for sinks; a source has channels, such as channels = ["q"]')
        own = (key, "interceptors", "selector")
        selector = self._table((*path, "selector"), table.get("selector", {"type": "replicating"}))
        return SourceConfig(
            **self._component(path, name, table, own),
            channels=self._names((*path, key), table.get(key, [])),
            interceptors=tuple(self._interceptors((*path, "interceptors"), table.get("interceptors", []))),
            selector=ComponentConfig(**self._component((*path, "selector"), "selector", selector)),
        )

    def _interceptors(self, path: toml_lines.Path, tables: Any) -> Iterable[ComponentConfig]:
        if not isinstance(tables, list):
            self._report(path, f"must be tables, each under [[{_dotted(path)}]]")
            return
        taken: set[str] = set()
        for place, each in enumerate(tables):
            here = (*path, place)
            table = self._table(here, each)
            name = self._text((*here, "name"), table.get("name") or self._default_name(table, taken))
            if name in taken:
                self._report((*here, "name"), f"another interceptor has the name {name!r} too")
            taken.add(name)
            yield ComponentConfig(**self._component(here, name, table, ("name",)))

    def _default_name(self, table: Mapping[str, Any], taken: Iterable[str]) -> str:
        kind = str(table.get("type", "interceptor"))
        return kind if kind not in taken else f"{kind}{sum(name.startswith(kind) for name in taken) + 1}"

    def _channel(self, name: str, table: Mapping[str, Any]) -> ComponentConfig:
        return ComponentConfig(**self._component(("channels", name), name, table))

    def _sink(self, name: str, table: Mapping[str, Any]) -> SinkConfig:
        path: toml_lines.Path = ("sinks", name)
        letters = table.get("dead_letters")
        key = "channels" if "channels" in table and "channel" not in table else "channel"
        if key == "channels":
            self._report((*path, key), 'is for sources; a sink takes from one channel, such as channel = "q"')
            channel = ",".join(self._names((*path, key), table[key])[:1])
        else:
            channel = self._text((*path, key), table.get(key, ""))
        return SinkConfig(
            **self._component(path, name, table, (key, "dead_letters")),
            channel=channel,
            dead_letters=None if letters is None else self._text((*path, "dead_letters"), letters),
        )

    def _group(self, name: str, table: Mapping[str, Any]) -> GroupConfig:
        path: toml_lines.Path = ("groups", name)
        return GroupConfig(
            **self._component(path, name, table, ("sinks",)),
            sinks=self._names((*path, "sinks"), table.get("sinks", [])),
        )

    def _components(self, kind: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
        for name, table in self._table((kind,), self._document.get(kind, {})).items():
            if not isinstance(table, Mapping):
                self._report((kind, name), f"must be a table, under [{kind}.{name}]")
            elif not name or "/" in name or name in (".", ".."):
                self._report((kind, name), "is not a valid component name: it must also be valid as a directory name")
            else:
                yield name, table

    def _component(
        self, path: toml_lines.Path, name: str, table: Mapping[str, Any], own: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the fields that all components have.

        :param own: keys that are not options.
        """
        options = {key: value for key, value in table.items() if key != "type" and key not in own}
        lines = {str(key): self._line((*path, key)) for key in ("type", *table)}
        return {
            "name": name,
            "type": self._type((*path, "type"), table.get("type")),
            "options": {key: self._resolved((*path, key), value) for key, value in options.items()},
            "lines": {"": self._line(path), **lines},
            "beside": own,
        }

    def _type(self, path: toml_lines.Path, value: Any) -> str:
        if value is None:
            self._report(path, "is missing: set it to the component's type")
            return ""
        name = self._text(path, value)
        if not name and isinstance(value, str):  # _text has reported other types
            self._report(path, "is empty: set it to the component's type")
        return name

    def _check_tables(self) -> None:
        """Report unknown tables. A misspelt table is read under the right name, so that its content is checked, too."""
        for name in [name for name in self._document if name not in _TABLES]:
            if name in options_of(AgentOptions):
                self._report((name,), "is outside of a table: write it under [agent]")
                continue
            self._report((name,), f"no such table{nearest(name, _TABLES)}")
            for meant in difflib.get_close_matches(name, _TABLES, 1, 0.6):
                self._document[meant] = _both(self._document[name], self._document.get(meant, {}))
                lines = {path: line for path, line in self._lines.items() if path[0] == name}
                self._lines |= {(meant, *path[1:]): line for path, line in lines.items()}

    # -- values

    def _table(self, path: toml_lines.Path, value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        self._report(path, "must be a table")
        return {}

    def _names(self, path: toml_lines.Path, value: Any) -> tuple[str, ...]:
        value = value.split() if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(dict.fromkeys(value))
        self._report(path, f"must be a list of names, got {shown(value)}")
        return ()

    def _text(self, path: toml_lines.Path, value: Any) -> str:
        value = self._resolved(path, value)
        if isinstance(value, str):
            return value
        self._report(path, f"must be text, got {shown(value)}")
        return ""

    def _own(self, agent: Mapping[str, Any]) -> AgentOptions:
        given = {key: self._resolved(("agent", key), value) for key, value in agent.items()}
        try:
            return read_options(AgentOptions, given, "agent", {key: self._line(("agent", key)) for key in given})
        except AgentConfigError as error:
            self._problems += error.problems
            return AgentOptions()

    def _resolved(self, path: toml_lines.Path, value: Any) -> Any:
        try:
            return self._references.resolve(value)
        except ValueError as error:
            self._report(path, str(error))
            return value

    def _line(self, path: toml_lines.Path) -> int:
        """Return the line of a key, or of the first key in it, or of the table that holds it."""
        while path and path not in self._lines:
            inside = [line for known, line in self._lines.items() if known[: len(path)] == path]
            if inside:
                return min(inside)
            path = path[:-1]
        return self._lines.get(path, 1)

    def _report(self, path: toml_lines.Path, message: str) -> None:
        self._problems.append(Problem(_dotted(path[:-1]), str(path[-1]), message, self._line(path)))


def _both(one: Any, other: Any) -> Any:
    """Merge two tables of components. A value that is not a table stays as it is."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one
    return {**one, **{name: _both(one.get(name, {}), table) if name in one else table for name, table in other.items()}}


def _dotted(path: toml_lines.Path) -> str:
    return ".".join(str(part) for part in path)
