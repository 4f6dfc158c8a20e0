"""The parser ``json``: a line that is a JSON object; its top-level keys become fields.

Strings are taken as they are; ``true`` and ``false``, numbers, objects and lists as compact JSON text; ``null`` leaves
the field out. Of a key that comes twice the last one counts. The line itself stays in ``content``, so nothing of this
loses anything.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(line: str) -> dict[str, str] | None:
    """The fields of a JSON object; None for anything else."""
    # Cheaper than the exception that nearly every line of another format would end in.
    if not line.lstrip().startswith("{"):
        return None
    try:
        loaded = json.loads(line)
        return {key: json_text(value) for key, value in loaded.items() if value is not None}
    # Too deep for the parser or, in integers, too long for Python: not a line to make fields of.
    except (ValueError, RecursionError):
        return None


def json_text(value: Any) -> str:
    """A value as the text of its field."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
