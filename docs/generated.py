"""A hook of MkDocs: tables of options are made of the code that reads the options, at each build of the site, and what
docstrings say for another builder of documents becomes plain.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from producer.agent.config.explain import explain
from producer.agent.config.registry import BUILT_IN
from producer.model.config import HttpConfig, ProducerConfig, option_rows
from producer.spark.options import READ_OPTIONS, TARGET_OPTIONS, WRITE_OPTIONS

_MARK = re.compile(r"^<!-- options: (\w+) -->$", re.MULTILINE)
#: What only who reads the file itself needs.
_OFF_THE_SITE = re.compile(r"<!-- off the site -->.*?<!-- on the site -->\n*", re.DOTALL)
#: A role of Sphinx, as the page has it.
_SHOWN_ROLE = re.compile(r":\w+:<code>[~.]?(?:\w+\.)*(\w+)</code>")
_COLUMN = re.compile(r"\b(__\w+__)\b")
_ROLE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`")


def meanings(config: type) -> dict[str, str]:
    """What each ``:ivar`` of a class says, as Markdown.

    :param config: the class.
    """
    found = re.findall(r"^:ivar (\w+): (.*(?:\n    .*)*)", inspect.getdoc(config) or "", re.MULTILINE)
    return {name: _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`") for name, text in found}


def producer_table() -> str:
    """Every option of the producer: default, rule and meaning."""
    own = meanings(ProducerConfig)
    told = own | {f"http.{name}": text for name, text in meanings(HttpConfig).items()}
    rows = [
        (_whole(name), default if " " in default else f"`{default}`", f"*{rule}*: {told[name]}")
        for name, default, rule in option_rows()
    ]
    rows.append((_whole("retry_policy"), "`RetryPolicy()`", f"*a RetryPolicy*: {own['retry_policy']}"))
    return _table(("option", "default", "what it must be, and what it means"), rows)


def _spark_table(options: Mapping[str, str]) -> str:
    rows = [(_whole(name), _COLUMN.sub(r"`\1`", text)) for name, text in options.items()]
    return _table(("option", "meaning"), rows)


def _whole(name: str) -> str:
    return f'<code style="white-space: nowrap">{name}</code>'  # the theme breaks it within words


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def agent_types() -> str:
    """What ``producer agent explain`` says of each type."""
    names = [f"{kind}.{name}" for kind, known in BUILT_IN.items() for name in sorted(known)]
    return "\n\n".join(f"### {name}\n\n```text\n{explain(name)}\n```" for name in names)


TABLES: dict[str, Callable[[], str]] = {
    "producer": producer_table,
    "target": lambda: _spark_table(TARGET_OPTIONS),
    "write": lambda: _spark_table(WRITE_OPTIONS),
    "read": lambda: _spark_table(READ_OPTIONS),
    "agent": agent_types,
}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put each table where its mark stands."""
    return _MARK.sub(lambda mark: TABLES[mark[1]](), _OFF_THE_SITE.sub("", markdown))


def on_page_content(content: str, **_: Any) -> str:
    """Leave the name of what a docstring refers to."""
    return _SHOWN_ROLE.sub(r"<code>\1</code>", content)
