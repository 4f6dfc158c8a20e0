"""The tables of options, metrics and commands in the documents, and lists of names, made of the code's declarations.

``python docs/generated.py`` writes them into the pages, between the marks ``<!-- options: … -->`` and ``<!-- end of
options -->``; a test compares. As a hook of MkDocs it takes the marks out, and the roles of docstrings.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from producer import testing
from producer.agent.config.explain import DIFFERENCES, summary_of
from producer.agent.config.limits import AgentOptions
from producer.agent.config.options import flume_name
from producer.agent.config.registry import BUILT_IN, INSTEAD, class_of
from producer.channels.file.channel import FileChannel
from producer.channels.file.options import FileChannelOptions
from producer.channels.limits import Limits
from producer.channels.memory import MemoryChannel
from producer.cli.commands import COMMANDS
from producer.cli.exit_codes import MEANINGS
from producer.integrations.figures import FIGURES, LATENCY
from producer.integrations.prometheus import LogHubCollector
from producer.model.config import HttpConfig, ProducerConfig, default_of, producer_options
from producer.model.errors import ProducerError
from producer.model.options import Option, options_of
from producer.spark.options import READ_OPTIONS, TARGET_OPTIONS, WRITE_OPTIONS

_TABLE = re.compile(r"(?<=^<!-- options: )([\w.]+)( -->\n).*?(?=^<!-- end of options -->$)", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"^<!-- (?:options: [\w.]+|end of options) -->$", re.MULTILINE)
AGENT = Path(__file__).parent / "agent"
SECURITY = Path(__file__).parents[1] / "SECURITY.md"
PAGES = [page for page in [*sorted(Path(__file__).parent.rglob("*.md")), SECURITY] if _TABLE.search(page.read_text())]
_SOURCE = re.compile(r"^<!-- options: sources\.(\w+) -->$", re.MULTILINE)
_NONE = "none"
#: The options by which a listening source knows its peers, and those that limit them.
_PROOFS = ("user", "password", "token", "shared_key", "client_authorities")
_LIMITS = (
    *("max_connections", "silence", "event_size", "max_line_length", "max_body", "max_frame", "max_memory"),
    *("request_timeout", "frame_timeout", "batch_size", "receive_buffer"),
)
#: A role of Sphinx, as the page has it.
_SHOWN_ROLE = re.compile(r":\w+:<code>[~.]*(?:\w+\.)*(\w+)</code>")
_COLUMN = re.compile(r"\b(__\w+__)\b")
_ROLE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`")


def meanings(documented: object) -> dict[str, str]:
    """Return what a docstring says of each variable or parameter, as Markdown."""
    found = re.findall(r"^:(?:ivar|param) (\w+): (.*(?:\n    .*)*)", inspect.getdoc(documented) or "", re.MULTILINE)
    return {name: _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`") for name, text in found}


def _after_rules(config: type) -> dict[str, str]:
    """Return the meanings without the line of each option's rule, which ``help`` shows before them."""
    rules = {each.name: f"{each.words()}, by default {default_of(each)}. " for each in options_of(config).values()}
    return {name: text.removeprefix(rules[name]) for name, text in meanings(config).items()}


def producer_table() -> str:
    """Every option of the producer."""
    own = _after_rules(ProducerConfig)
    told = own | {f"http.{name}": text for name, text in _after_rules(HttpConfig).items()}
    return _table(
        (name, each, _python(each), told[name]) for name, each in producer_options().items() if name != "http"
    )


def _channel(options: type, channel: type) -> str:
    told, parameters = meanings(channel), inspect.signature(channel).parameters
    rows = options_of(options).items()
    return _table((name, each, f"`{parameters[name].default!r}`", told[name]) for name, each in rows)


def _spark(options: Mapping[str, Option]) -> str:
    rows = options.items()
    return _table((name, each, _python(each), _COLUMN.sub(r"`\1`", each.doc)) for name, each in rows)


def _python(each: Option) -> str:
    if each.default is ...:
        return "required"
    default = default_of(each)
    return default if " " in default else f"`{default}`"


def _table(rows: Iterable[tuple[str, Option, str, str]]) -> str:
    cells = [(f"`{name}`", default, f"*{each.words()}*: {told}") for name, each, default, told in rows]
    return _lines(("option", "default", "what it must be, and what it means"), cells)


def _lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def agent_type(kind: str, name: str) -> str:
    """Return the summary of an agent's type, the table of its options, and its differences from Flume."""
    cls = class_of(kind, name)
    rows = [
        (f"`{each.name}`", _toml(each), f"*{each.words(text=True)}*: {each.doc.replace('``', '`')}", _in_flume(each))
        for each in options_of(cls.Options).values()
    ]
    table = [_lines(("option", "default", "what it must be, and what it means", "in Flume"), rows)] if rows else []
    differences = [f"* Flume: {theirs}; here: {ours}" for theirs, ours in DIFFERENCES.get(f"{kind}.{name}", ())]
    return "\n\n".join([summary_of(cls), *table, *["\n".join(differences)][: len(differences)]])


def each_type(kind: str) -> str:
    """Return a section for each of an agent's types that has options."""
    options = {name: class_of(kind, name).Options for name in sorted(BUILT_IN[kind])}
    names = [name for name, declared in options.items() if declared and options_of(declared)]
    return "\n\n".join(f"### {name}\n\n{agent_type(kind, name)}" for name in names)


def instead_table() -> str:
    """Return Flume's types that do not exist, with what replaces them."""
    known = ((kind, name, use) for kind, named in INSTEAD.items() for name, use in named.items())
    rows = [(kind[:-1], f"`{name}`", use) for kind, name, use in known if name not in BUILT_IN[kind]]
    return _lines(("kind", "Flume", "here"), rows)


def sources_table() -> str:
    """Return the agent's sources with their summaries, each with a link to the page that has its options."""
    pages = {name: page for page in PAGES for name in _SOURCE.findall(page.read_text())}
    return _lines(("source", "of"), (_source(name, page) for name, page in sorted(pages.items())))


def _source(name: str, page: Path) -> tuple[str, str]:
    told = summary_of(class_of("sources", name)).removeprefix("Source of ").partition(". Modelled")[0]
    return f"[`{name}`]({os.path.relpath(page, AGENT / 'sources')})", told.rstrip(".")


#: Ports of sources whose defaults depend on another option.
_PORTS = {"otlp": "4318, by gRPC 4317"}


def listeners_table() -> str:
    """Return the sources that listen, with their addresses, options of authentication and limits."""
    head = ("source", "address", "authentication", "TLS", "limits")
    options = {name: options_of(class_of("sources", name).Options) for name in sorted(BUILT_IN["sources"])}
    return _lines(head, [_listener(name, known) for name, known in options.items() if "bind" in known])


def _listener(name: str, options: Mapping[str, Option]) -> tuple[str, ...]:
    port = options["port"].default or _PORTS.get(name)
    return (
        f"`{name}`",
        f"{options['bind'].default}, port {port}" if isinstance(port, int | str) else options["bind"].default,
        ", ".join(f"`{each}`" for each in _PROOFS if each in options) or _NONE,
        "`certificate`" if "certificate" in options else _NONE,
        ", ".join(f"`{each}` {_measured(options[each].default)}" for each in _LIMITS if each in options),
    )


def metrics_table() -> str:
    """Return the metrics of a producer, with their names in Prometheus and OpenTelemetry."""
    dotted = [*((each.name, each.help) for each in FIGURES), LATENCY[::2]]
    rows = [
        (f"`{family.name}{'_total' if family.type == 'counter' else ''}`", f"`loghub.producer.{name}`", text)
        for family, (name, text) in zip(LogHubCollector().describe(), dotted, strict=True)
    ]
    return _lines(("in Prometheus", "in OpenTelemetry", "meaning"), rows)


def commands_table() -> str:
    """Return the commands with their purposes."""
    return _lines(("command", "purpose"), ((f"`{name}`", command.help) for name, command in COMMANDS.items()))


def exit_codes_table() -> str:
    """Return the exit codes with their meanings."""
    return _lines(("code", "meaning"), ((str(code.value), meaning) for code, meaning in MEANINGS.items()))


def reference(*modules: str, chosen: Callable[[str, Any], bool] = lambda _name, _object: True) -> str:
    """Return the directives that show the public names of modules; ``chosen`` takes a name and its object."""
    known = [(place, name) for place in modules for name in importlib.import_module(place).__all__]
    objects = ((place, name, getattr(importlib.import_module(place), name)) for place, name in known)
    return "\n".join(f"::: {place}.{name}" for place, name, value in objects if chosen(name, value))


def _is_error(_name: str, value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ProducerError)


def _measured(limit: float) -> str:
    """Return a limit with its unit: fractions are seconds, large whole numbers bytes."""
    if isinstance(limit, float):
        return f"{limit:g} s"
    return f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB" if limit >= 1 << 10 else str(limit)


def _in_flume(each: Option) -> str:
    return f"`{flume_name(each)}`" + ("" if each.scale == 1 else f", times {each.scale}")


def _toml(each: Option) -> str:
    if each.default is ...:
        return "required"
    return _NONE if each.default is None else f"`{json.dumps(each.default, default=str)}`"


TABLES: dict[str, Callable[[], str]] = {
    "producer": producer_table,
    "file_channel": lambda: _channel(FileChannelOptions, FileChannel),
    "memory_channel": lambda: _channel(Limits, MemoryChannel),
    "target": lambda: _spark(TARGET_OPTIONS),
    "write": lambda: _spark(WRITE_OPTIONS),
    "read": lambda: _spark(READ_OPTIONS),
    "listeners": listeners_table,
    "sources": sources_table,
    "instead": instead_table,
    "metrics": metrics_table,
    "commands": commands_table,
    "exit_codes": exit_codes_table,
    "names.errors": lambda: reference("producer", chosen=_is_error),
    "names.agent": lambda: reference("producer.agent", "producer.agent.testing"),
    "names.spark": lambda: reference("producer.spark"),
    "names.testing": lambda: reference("producer.testing"),
    "names.server": lambda: reference("producer.server", chosen=lambda name, _: name not in testing.__all__),
    "names.faults": lambda: reference("producer.server.faults"),
    "agent": lambda: _table((name, each, _toml(each), each.doc) for name, each in options_of(AgentOptions).items()),
}
TABLES |= {
    f"{kind}.{name}": partial(agent_type, kind, name) for kind, known in BUILT_IN.items() for name in sorted(known)
}
TABLES |= {f"each.{kind}": partial(each_type, kind) for kind in BUILT_IN}


def filled(markdown: str) -> str:
    """Return a page with each table as the code has it."""
    return _TABLE.sub(lambda mark: f"{mark[1]}{mark[2]}\n{TABLES[mark[1]]()}\n\n", markdown)


def without_tables(markdown: str) -> str:
    """Return a page without its tables of options."""
    return _TABLE.sub("", markdown)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Take out the marks."""
    return _MARK.sub("", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Leave the name of what a docstring refers to."""
    return _SHOWN_ROLE.sub(r"<code>\1</code>", content)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))
