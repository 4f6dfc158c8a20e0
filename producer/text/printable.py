r"""Names as text that UTF-8 can carry, and that a line can hold.

A file's name is bytes. Python hands out those that are not UTF-8 as halves of surrogate pairs, with which a path still
opens its file, but which neither a record, nor a terminal, nor a Spark worker's message to the driver can hold. To be
shown or sent, they become ``\xNN``, as such bytes of a line do.
"""

from __future__ import annotations

import re

#: After a password, which may have any character, the last ``@``; a path made of a URL has one slash only.
_USERINFO = re.compile(r"(:/+)(?:[^\s/'\"@:]*:\S*|[^\s/'\"]+)@")
#: Characters of a wrong value in a message.
_MOST_DESCRIBED = 200


def readable(text: str) -> str:
    r"""``text`` with every byte that was not UTF-8 as ``\xNN``.

    :param text: a path, or a message with paths in it.
    """
    if text.isascii():
        return text
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # surrogates that no byte stands behind
        return text.encode(errors="backslashreplace").decode()


def one_line(text: str) -> str:
    """What somebody else says, as a line may hold it: with backslashes where a reader or a terminal would see more than
    a text.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def message(text: str) -> str:
    """A message of any number of lines, each as :func:`shown`; lines behind the first are indented: a newline in
    foreign text begins no message of its own.
    """
    first, *others = map(shown, text.split("\n"))
    return "\n".join([first, *(line if line.startswith(" ") or not line else f"  {line}" for line in others)])


def shown(text: str) -> str:
    r"""``text``, :func:`readable` and in :func:`one_line`: a name with a newline is no second line."""
    return one_line(readable(text))


def repr_of(value: object) -> str:
    """Its ``repr``, or that it has none."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001  # a user's class
        return f"<{type(value).__qualname__}, whose repr raised {type(error).__qualname__}>"


def described(value: object) -> str:
    """Return the ``repr`` of a wrong value for a message: its beginning, if it is long."""
    text = repr_of(value)
    return text if len(text) <= _MOST_DESCRIBED else f"{text[:_MOST_DESCRIBED]}…"


def without_userinfo(text: str) -> str:
    """Return the text with the user and the password of every URL hidden."""
    return _USERINFO.sub(r"\1***@", text)
