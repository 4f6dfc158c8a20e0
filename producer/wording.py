"""What the sending side and the embedded server say in the same words: the rule of names, and numbers with their nouns.

Of names the service also wants two characters at least, or three, which servers of one's own need not.
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


def counted(number: int, noun: str, nouns: str = "", form: str = "") -> str:
    """A number with its noun: ``1 file``, ``2 files``.

    :param nouns: the noun where it is not one, if that has no ``s`` alone (``batches``), or what else changes with it
        (``event is``, ``events are``).
    :param form: of the number; ``,`` for ``1,000``.
    """
    return f"{number:{form}} {noun if number == 1 else nouns or f'{noun}s'}"
