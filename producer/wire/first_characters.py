"""With which characters a match of a pattern may begin, so that most of what cannot match need not be tried.

What a character may be is learned from ``re`` itself, which is asked for each one there is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .regex_internals import codes, compiler, parser

#: A row of what a pattern is made of, as ``re`` has parsed it.
Items = Sequence[tuple[Any, Any]]
#: Items that are one character.
SINGLE = (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY)
REPEATS = (codes.MAX_REPEAT, codes.POSSESSIVE_REPEAT, codes.MIN_REPEAT)


class UnknownItemError(Exception):
    """The pattern has what is not known here."""


class FirstCharacters:
    """Of the items of one pattern.

    :param flags: of the pattern.
    :param alphabet: all characters that are asked for; bytes for a pattern of bytes.
    """

    def __init__(self, flags: int, alphabet: Sequence[str] | Sequence[bytes]) -> None:
        self._flags, self._alphabet = flags, alphabet
        self._none = bytes(len(alphabet))
        self._known: dict[str, bytes] = {}

    def taken_by(self, item: tuple[Any, Any]) -> bytes:
        """Which characters a single one may be, a byte each."""
        text = repr(item)
        if text not in self._known:
            state = parser.State()
            state.flags, state.str = self._flags, self._alphabet[0][:0]
            match = compiler.compile(parser.SubPattern(state, [item]), self._flags).fullmatch
            self._known[text] = bytes(match(character) is not None for character in self._alphabet)
        return self._known[text]

    def of(self, items: Items) -> bytes | None:
        """Which characters can be the first; None if there may be none.

        :raises UnknownItemError: it is not known.
        """
        found, needed = self._of_all(items)
        return found if needed else None

    def _of_all(self, items: Items) -> tuple[bytes, bool]:
        """Which characters can be the first of some items, and whether they have one at least."""
        found = self._none
        for code, argument in items:
            ones, needed = self._of_item(code, argument)
            found = bytes(map(max, found, ones))
            if needed:
                return found, True
        return found, False

    def _of_item(self, code: Any, argument: Any) -> tuple[bytes, bool]:
        if code in SINGLE:
            return self.taken_by((code, argument)), True
        if code in REPEATS:
            found, needed = self._of_all(argument[2])
            return found, needed and argument[0] > 0
        if code is codes.SUBPATTERN and not argument[1] and not argument[2]:  # else its flags are others
            return self._of_all(argument[3])
        if code is codes.BRANCH:
            parts = [self._of_all(branch) for branch in argument[1]]
            return bytes(map(max, *(found for found, _ in parts))), all(needed for _, needed in parts)
        raise UnknownItemError


def first_bytes(pattern: re.Pattern[bytes]) -> bytes:
    """With which bytes what it matches at the beginning may begin: 256 bytes, 1 for those and 0 for others."""
    items = list(parser.parse(pattern.pattern, pattern.flags))
    while items and items[0][0] is codes.AT and items[0][1] in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
        del items[0]
    try:
        found = FirstCharacters(pattern.flags, [bytes((byte,)) for byte in range(256)]).of(items)
    except UnknownItemError:
        found = None
    return b"\1" * 256 if found is None else found
