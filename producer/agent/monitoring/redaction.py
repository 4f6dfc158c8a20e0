"""Hide secrets in texts and events that the monitoring shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...text.printable import HIDDEN, hide, without_userinfo
from ..flow.taps import MOST_BODY, MOST_HEADER, Seen
from ..interceptors.kinds import KINDS

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
    """Return the beginning of a copied text without secrets.

    :param most: maximum number of characters to return; copies have twice as many.
    :param is_cut: True if the copy lacks the end of the text. Its last ``most`` characters are then left out: they may
        begin a secret.
    """
    text = redacted(text, hidden)
    return text[: min(most, max(0, len(text) - most))] if is_cut else text[:most]


def redacted_event(seen: Seen, hidden: Mapping[str, str]) -> dict[str, Any]:
    """Return an event for JSON: headers, body, and ``size``, the bytes of the whole body."""
    headers = {_beginning(name, hidden): _value(name, value, hidden) for name, value in seen.headers.items()}
    body = seen.body.decode(errors="backslashreplace")
    text = redacted_copy(body, hidden, MOST_BODY // 2, is_cut=seen.size > len(seen.body))
    return {"headers": headers, "body": text, "size": seen.size}


def _value(name: str, value: str, hidden: Mapping[str, str]) -> str:
    """Return a header's value without secrets; hide all of it if the header's name says that it is one."""
    named = f"{name}={json.dumps(value)}"
    if any(_find(kind)(named) != named and _find(kind)(value) == value for kind in _KINDS):
        return HIDDEN
    return _beginning(value, hidden)


def _beginning(text: str, hidden: Mapping[str, str]) -> str:
    return redacted_copy(text, hidden, MOST_HEADER // 2, is_cut=len(text) >= MOST_HEADER)


def _find(kind: str) -> Callable[[str], str]:
    return lambda text: KINDS[kind](text, HIDDEN)
