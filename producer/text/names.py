"""Rules for the names of projects and logstores, shared by the client side and the embedded server.

The service also wants at least two characters, or three; a server of your own need not.
"""

from __future__ import annotations

import re
from typing import TypeGuard

_MOST_CHARACTERS = 63
_PROJECT = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LOGSTORE = re.compile(r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?")

PROJECT_RULE = (
    "must be lower-case letters, digits and dashes, begin and end with a letter or a digit, and have "
    f"{_MOST_CHARACTERS} characters at most"
)
LOGSTORE_RULE = (
    "must be lower-case letters, digits, dashes and underscores, begin and end with a letter or a digit, and have "
    f"{_MOST_CHARACTERS} characters at most"
)

#: How an embedded LogHub ends the refusal of a look at what its first write creates; the service never says so.
CREATED_BY_A_WRITE = "the first write creates it"


def is_project_name(name: object) -> TypeGuard[str]:
    """Whether a project could be called so."""
    return _fits(_PROJECT, name)


def is_logstore_name(name: object) -> TypeGuard[str]:
    """Whether a logstore could be called so."""
    return _fits(_LOGSTORE, name)


def _fits(pattern: re.Pattern[str], name: object) -> TypeGuard[str]:
    return isinstance(name, str) and len(name) <= _MOST_CHARACTERS and pattern.fullmatch(name) is not None
