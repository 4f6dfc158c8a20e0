"""Hide secrets in texts and events that the monitoring shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...text.printable import without_userinfo
from ..config.references import hide
from ..flow.taps import MOST_BODY, MOST_HEADER, Seen
from ..interceptors.kinds import KINDS

_HIDDEN = "***"
#: Kinds of the interceptor ``redact`` that are secrets.
_KINDS = ("password", "bearer")


def redacted(text: str, hidden: Mapping[str, str]) -> str:
    """Return a text without values of the environment and of files, secret options, passwords and tokens.

    :param hidden: the texts to replace, of :attr:`~..run.agent.Agent.hidden`.
    """
    text = without_userinfo(hide(text, hidden))
    for kind in _KINDS:
        text = _find(kind)(text)
    return text


def redacted_copy(text: str, hidden: Mapping[str, str], most: int, *, is_cut: bool) -> str:
    """Return the begin of a copy without secrets.

    :param most: half of the maximum length of a copy.
    :param is_cut: True if the copy has only the begin of its text. Its last ``most`` characters are then left out: they
        may have a part of a secret.
    """
    text = redacted(text, hidden)
    return text[: min(most, max(0, len(text) - most))] if is_cut else text[:most]


def redacted_event(seen: Seen, hidden: Mapping[str, str]) -> dict[str, Any]:
    """Return an event as JSON has it: headers, body, and ``size``, the bytes of the whole body."""
    headers = {_begin(name, hidden): _value(name, value, hidden) for name, value in seen.headers.items()}
    body = seen.body.decode(errors="backslashreplace")
    text = redacted_copy(body, hidden, MOST_BODY // 2, is_cut=seen.size > len(seen.body))
    return {"headers": headers, "body": text, "size": seen.size}


def _value(name: str, value: str, hidden: Mapping[str, str]) -> str:
    """Return a header's value without secrets; hide all of it if its name is that of a secret."""
    named = f"{name}={json.dumps(value)}"
    if any(_find(kind)(named) != named and _find(kind)(value) == value for kind in _KINDS):
        return _HIDDEN
    return _begin(value, hidden)


def _begin(text: str, hidden: Mapping[str, str]) -> str:
    return redacted_copy(text, hidden, MOST_HEADER // 2, is_cut=len(text) >= MOST_HEADER)


def _find(kind: str) -> Callable[[str], str]:
    return lambda text: KINDS[kind](text, _HIDDEN)
