"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str, nouns: str = "", form: str = "") -> str:
    """Return a number with its noun: ``1 file``, ``2 files``.

    :param nouns: the plural where it is not the noun with an ``s`` (``batches``), or where a verb changes, too (``event
        is``, ``events are``).
    :param form: format of the number; ``,`` for ``1,000``.
    """
    return f"{number:{form}} {noun if number == 1 else nouns or f'{noun}s'}"
