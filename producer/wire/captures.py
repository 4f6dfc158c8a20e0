"""Simple patterns as steps that compiled code runs over many bodies at once.

Python's ``re`` needs more than a microsecond for a line of an access log. Most patterns for such lines are a row of
characters, runs of characters of one kind, and groups: ``^(\\S+) \\[([^]]+)\\] "(.*?)" (\\d+|-)``. Their steps try what
``re`` would try, in its order: of a run as much as there is, then less; of a lazy run as little as lets the next
character match, then more. Of alternatives, and of what may be left out, only the first one is tried that may begin
here. So what the steps find is what ``re`` finds. Where they find nothing, or a body has other characters than
ASCII's, nothing is known, and ``re`` is asked; so each answer is that of ``re``, whatever the pattern.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..runtime.compiled import compiled
from .first_characters import SINGLE, FirstCharacters, Items, UnknownItemError
from .regex_internals import codes, parser

_ONE, _GREEDY, _POSSESSIVE, _LAZY, _OPEN, _SHUT, _CHOICE, _JUMP, _END = range(9)
#: Kind, least, most, where to or which group, which characters, and which ones end a lazy run.
_STEP = struct.Struct("=4I128s128s")
_NONE, _ALL = bytes(128), b"\1" * 128
_MOST = 2**32 - 1
_MOST_STEPS = 1000
_ASCII = [chr(code) for code in range(128)]
_REPEATS = {codes.MAX_REPEAT: _GREEDY, codes.POSSESSIVE_REPEAT: _POSSESSIVE, codes.MIN_REPEAT: _LAZY}

_capture: Callable[..., tuple[bytes, list[tuple[bytes, bytes]]]] | None = getattr(
    compiled(f"{__package__}._captures"), "capture", None
)


class Captured(NamedTuple):
    """What was found in many bodies.

    :ivar found: a byte each: 1 where the pattern was found, 0 where ``re`` has to be asked.
    :ivar columns: of each group the sizes of its texts (32-bit numbers of the machine, 0xFFFFFFFF for none), and they.
    """

    found: bytes
    columns: list[tuple[bytes, bytes]]


class Steps:
    """The steps of a pattern.

    :param slots: by the number of a group that is wanted: which column gets it.
    :param whole: they match a body from its first to its last character, as ``fullmatch``.
    """

    def __init__(self, items: Items, flags: int, slots: Mapping[int, int], *, whole: bool = False) -> None:
        self._flags, self._slots, self._steps = flags, slots, list[bytes]()
        self._firsts = FirstCharacters(flags, _ASCII)
        rest = list(items)
        begins = bool(rest) and rest[0][0] is codes.AT and _is_beginning(rest.pop(0)[1])
        self._anchored = begins or whole
        end = rest.pop()[1] if rest and rest[-1][0] is codes.AT else None
        self._ended = _is_end(end) if end is not None else whole
        self._before_newline = end is codes.AT_END and not whole  # ``$`` is also before a newline that is the last one
        first = self._firsts.of(rest)
        self._begin = _ALL if first is None else first
        self._add_all(rest, None)
        if self._ended:
            self._add(_END, target=int(self._before_newline))
        self._program = b"".join(self._steps)

    def capture(self, count: int, ends: bytes, data: bytes) -> Captured:
        """Look into many bodies.

        :param ends: where each ends, 64-bit numbers of the machine; empty for lines.
        """
        assert _capture is not None  # noqa: S101  # there are no steps without it
        return Captured(*_capture(self._program, len(self._slots), self._begin, self._anchored, count, ends, data))

    def _add_all(self, items: Items, following: Items | None) -> None:
        """
        :param following: what comes behind them; None for the end of the pattern.
        """
        for number, (code, argument) in enumerate(items):
            rest = [*items[number + 1 :], *(following or ())]
            if code in SINGLE:
                self._add(_ONE, ones=self._firsts.taken_by((code, argument)))
            elif code in _REPEATS and _is_run(argument):
                until = self._next(rest) if code is codes.MIN_REPEAT else _NONE
                ones = self._firsts.taken_by(argument[2][0])
                if code is codes.MIN_REPEAT and not rest and self._before_newline and ones[ord("\n")]:
                    raise UnknownItemError  # it ends before the last newline, or behind it
                self._add(_REPEATS[code], argument[0], argument[1], ones=ones, until=until)
            elif code is codes.SUBPATTERN and not argument[1] and not argument[2]:
                self._add_group(argument[0], argument[3], rest)
            elif code is codes.BRANCH:
                self._add_branches([*argument[1][:-1]], argument[1][-1], rest)
            elif code is codes.MAX_REPEAT and tuple(argument[:2]) == (0, 1):
                self._add_branches([argument[2]], (), rest)
            else:
                raise UnknownItemError

    def _add_group(self, number: int | None, items: Items, rest: Items) -> None:
        slot = None if number is None else self._slots.get(number)
        if slot is not None:
            self._add(_OPEN, target=slot)
        self._add_all(items, rest)
        if slot is not None:
            self._add(_SHUT, target=slot)

    def _add_branches(self, branches: Iterable[Items], last: Items, rest: Items) -> None:
        """One whose first character is not there cannot be; who has it, is tried, and no other one."""
        jumps = []
        for branch in branches:
            first = self._firsts.of(branch)
            if first is None:
                raise UnknownItemError
            choice = self._add(_CHOICE, ones=first)
            self._add_all(branch, rest)
            jumps.append(self._add(_JUMP))
            self._steps[choice] = _STEP.pack(_CHOICE, 0, 0, len(self._steps), first, _NONE)
        self._add_all(last, rest)
        for jump in jumps:
            self._steps[jump] = _STEP.pack(_JUMP, 0, 0, len(self._steps), _NONE, _NONE)

    def _add(
        self, kind: int, least: int = 0, most: int = 0, *, target: int = 0, ones: bytes = _NONE, until: bytes = _NONE
    ) -> int:
        if len(self._steps) >= _MOST_STEPS or least > _MOST:
            raise UnknownItemError
        self._steps.append(_STEP.pack(kind, least, min(int(most), _MOST), target, ones, until))
        return len(self._steps) - 1

    def _next(self, rest: Items) -> bytes:
        """What ends a lazy run: the character behind it; the end where the pattern ends so, and else anything."""
        if not rest:
            return _NONE if self._ended else _ALL
        for code, argument in rest:
            if code in SINGLE:
                return self._firsts.taken_by((code, argument))
            if code is codes.SUBPATTERN and not argument[1] and not argument[2] and len(argument[3]):
                return self._next(argument[3])
            break
        raise UnknownItemError


def steps_of(pattern: re.Pattern[str], groups: Sequence[int], *, whole: bool = False) -> Steps | None:
    """The steps of a pattern; None if it cannot be written so, or nothing compiled is there to run them.

    :param groups: the numbers of those that are wanted, in order.
    :param whole: as ``fullmatch``; else as ``search``.
    """
    if _capture is None or pattern.flags & (re.MULTILINE | re.LOCALE):
        return None
    slots = {number: slot for slot, number in enumerate(groups)}
    if len(slots) < len(groups):
        return None
    try:
        return Steps(parser.parse(pattern.pattern, pattern.flags), pattern.flags, slots, whole=whole)
    except UnknownItemError:
        return None


def _is_run(argument: Any) -> bool:
    return len(argument[2]) == 1 and argument[2][0][0] in SINGLE


def _is_beginning(where: Any) -> bool:
    if where in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
        return True
    raise UnknownItemError


def _is_end(where: Any) -> bool:
    if where in (codes.AT_END, codes.AT_END_STRING):
        return True
    raise UnknownItemError
