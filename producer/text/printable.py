r"""Foreign text in a form that UTF-8 and a single line can hold.

A file's name is bytes. Python represents bytes that are not UTF-8 as halves of surrogate pairs. A path with them opens
its file, but neither a record, nor a terminal, nor a Spark worker's message to the driver can hold them. In messages
and records they become ``\xNN``, like such bytes of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: User and password before the last ``@``, since a password may have any character; a path made from a URL has one
#: slash.
_USERINFO = re.compile(r"(:/+)(?:[^\s/'\"@:]*:\S*|[^\s/'\"]+)@")
#: The text in place of a secret.
HIDDEN = "***"
#: Minimum characters of a hidden secret: shorter ones occur in messages for other reasons.
LEAST_SECRET = 4
#: Maximum number of characters of an invalid value in a message.
_MOST_DESCRIBED = 200


def readable(text: str) -> str:
    r"""Return ``text`` with every byte that is not UTF-8 as ``\xNN``.

    :param text: a path, or a message that contains paths.
    """
    if text.isascii():
        return text
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return text.encode(errors="backslashreplace").decode()


def one_line(text: str) -> str:
    """Return foreign text on one line: unprintable characters are escaped with backslashes."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def message(text: str) -> str:
    """Return a message of several lines, each printable, with all but the first indented.

    So a newline in foreign text cannot begin a message of its own.
    """
    first, *others = map(shown, text.split("\n"))
    return "\n".join([first, *(line if line.startswith(" ") or not line else f"  {line}" for line in others)])


def shown(text: str) -> str:
    r"""Return ``text`` readable and on one line: a newline in a name cannot begin a second line."""
    return one_line(readable(text))


def repr_of(value: object) -> str:
    """Return the value's ``repr``, or a note that it raised."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  # a user's class
        return f"<{type(value).__qualname__}, whose repr raised {type(error).__qualname__}>"


def described(value: object) -> str:
    """Return the ``repr`` of an invalid value for a message, cut if it is long."""
    text = repr_of(value)
    return text if len(text) <= _MOST_DESCRIBED else f"{text[:_MOST_DESCRIBED]}…"


def without_userinfo(text: str) -> str:
    """Return the text with user and password of every URL hidden."""
    return _USERINFO.sub(rf"\1{HIDDEN}@", text)


def hide(text: str, secrets: Mapping[str, str]) -> str:
    """Replace secrets in a text, the longest first, also where they are quoted by ``repr``.

    :param secrets: the text to show, by secret.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        for form in (secret, repr(secret)[1:-1]):
            text = text.replace(form, secrets[secret])
    return text


def masked(text: str, secrets: Iterable[str | None], least: int = LEAST_SECRET) -> str:
    """Return a text with ``***`` in place of each secret.

    :param secrets: the secrets; None and empty ones are ignored.
    :param least: the minimum characters of a hidden secret.
    """
    return hide(text, {secret: HIDDEN for secret in secrets if secret and len(secret) >= least})
