"""Rules for names of projects and logstores, shared by the clients and the embedded server.

LogHub itself also requires two or three characters at least; a server of your own need not.
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

#: End of an embedded LogHub's refusal to read a logstore that its first write creates; LogHub itself never sends it.
CREATED_BY_A_WRITE = "the first write creates it"


def is_project_name(name: object) -> TypeGuard[str]:
    """Return True if the name is valid for a project."""
    return _fits(_PROJECT, name)


def is_logstore_name(name: object) -> TypeGuard[str]:
    """Return True if the name is valid for a logstore."""
    return _fits(_LOGSTORE, name)


def _fits(pattern: re.Pattern[str], name: object) -> TypeGuard[str]:
    return isinstance(name, str) and len(name) <= _MOST_CHARACTERS and pattern.fullmatch(name) is not None
