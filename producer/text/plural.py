"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str, nouns: str = "", form: str = "") -> str:
    """A number with its noun: ``1 file``, ``2 files``.

    :param nouns: the noun where it is not one, if that has no ``s`` alone (``batches``), or what else changes with it
        (``event is``, ``events are``).
    :param form: of the number; ``,`` for ``1,000``.
    """
    return f"{number:{form}} {noun if number == 1 else nouns or f'{noun}s'}"
