"""Render the page: the agent as boxes and arrows, with rates computed from ``/status.json`` every two seconds.

The page loads no other file. Its first figures are in the HTML, so that it is useful without scripts, too.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any


def page(figures: Mapping[str, Any], nonce: str) -> str:
    """Return the HTML.

    :param nonce: the nonce that allows the page's own script and style.
    """
    rows = "".join(
        f'<tr data-row="{kind}.{html.escape(name)}"><td>{kind}</td>'
        f"<td class=name>{html.escape(name)}</td><td>{html.escape(row['type'])}</td>"
        f"<td class=state>{html.escape(_state(row))}</td><td class=rate></td><td class=total></td>"
        f"<td class=waits></td><td class=error>{html.escape(row['error'] or '')}</td></tr>\n"
        for kind, rows in (("source", "sources"), ("channel", "channels"), ("sink", "sinks"))
        for row in figures[rows]
        for name in (row["name"],)
    )
    values = {
        "NONCE": nonce,
        "AGENT": html.escape(figures["agent"]),
        "ROWS": rows,
        # In a script only "<" could end it.
        "FIGURES": json.dumps(figures).replace("<", "\\u003c"),
    }
    text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")  # the package may be in a zip file
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _state(row: Mapping[str, Any]) -> str:
    if "open" in row:
        return "open" if row["open"] else "closed"
    return str(row["state"])
