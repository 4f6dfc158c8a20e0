"""The parser ``json``: a line that is a JSON object; its top-level keys become fields.

Strings are used unchanged. ``true`` and ``false``, numbers, objects and lists become compact JSON text. ``null`` is
left out. Of a repeated key, the last value is used. The line itself stays in ``content``, so nothing is lost.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(line: str) -> dict[str, str] | None:
    """Return the fields of a JSON object; None for any other line."""
    # This check is cheaper than the exception for nearly every line of another format.
    if not line.lstrip().startswith("{"):
        return None
    try:
        loaded = json.loads(line)
        return {key: json_text(value) for key, value in loaded.items() if value is not None}
    # The line nests too deeply for the parser, or has too long an integer for Python.
    except (ValueError, RecursionError):
        return None


def json_text(value: Any) -> str:
    """Return a value as the text of its field."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
