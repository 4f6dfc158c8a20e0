"""Encoding of an event as a JSON line: ``{"headers": {…}, "body": "…"}``; ``body_base64`` if it is not UTF-8."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping


def json_line(headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the line of an event, with its line end."""
    try:
        line = {"headers": headers, "body": body.decode()}
    except UnicodeDecodeError:
        line = {"headers": headers, "body_base64": b64encode(body).decode()}
    return json.dumps(line, ensure_ascii=False).encode(errors="replace") + b"\n"
