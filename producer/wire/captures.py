"""Compiles simple patterns to steps that native code runs over many bodies at once.

A search by ``regex`` takes 2 to 3 microseconds for a line of an access log. Most patterns for such lines are a sequence
of characters, runs of one kind of character, and groups: ``^(\\S+) \\[([^]]+)\\] "(.*?)" (\\d+|-)``.

The steps try what a search would try, in the same order. For a run, they try the longest match first, then shorter
ones. For a lazy run, they try the shortest match that the next character can follow, then longer ones. For alternatives
and optional parts, they try only the first that may begin at the position. So the steps find what a search finds. If
they find nothing, take too long, or a body is not ASCII, the result is unknown, and :class:`.patterns.Pattern`
searches. So each result is that of a search.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..runtime.compiled import compiled
from .patterns import Pattern

_ONE, _GREEDY, _POSSESSIVE, _LAZY, _OPEN, _SHUT, _CHOICE, _JUMP, _END = range(9)
#: Kind, least, most, target or group, accepted characters, and characters that end a lazy run.
_STEP = struct.Struct("=4I128s128s")
_NONE, _ALL = bytes(128), b"\1" * 128
_MOST = 2**32 - 1
_MOST_STEPS = 1000
_ASCII = [chr(code) for code in range(128)]
_BYTES = [bytes((code,)) for code in range(256)]
_RUNS = {"": _GREEDY, "+": _POSSESSIVE, "?": _LAZY}
#: Flags at the start of a pattern.
_FLAGS = re.compile(r"(?:\(\?[ais]+\))*")
_TOKEN = re.compile(
    r"(?P<run>([*+?]|\{(?:\d+(?:,\d*)?|,\d*)\})([+?]?))"
    r"|(?P<open>\((?:\?:|\?P<\w+>|(?!\?)))|(?P<shut>\))|(?P<bar>\|)"
    r"|(?P<anchor>\^|\$|\\[AZ])"
    r"|(?P<one>\\(?:[dDsSwWtnrfva]|x[0-9a-fA-F]{2}|[^\w])|\[\^?\]?(?:\\.|[^\]\\])*+\]|[^\\\[()|*+?^$])",
    re.DOTALL | re.ASCII,
)

_capture: Callable[..., tuple[bytes, list[tuple[bytes, bytes]]]] | None = getattr(
    compiled(f"{__package__}._captures"), "capture", None
)


class Captured(NamedTuple):
    """The result of steps over many bodies.

    :ivar found: a byte per body: 1 if the steps matched, 0 if a search is needed.
    :ivar columns: for each group the sizes of its texts (32-bit integers in native byte order, 0xFFFFFFFF for none),
        and the texts.
    """

    found: bytes
    columns: list[tuple[bytes, bytes]]


class _UnknownItemError(Exception):
    """Raised when a pattern has an item that steps cannot express."""


class _Item(NamedTuple):
    """An item of a pattern.

    :ivar kind: a character (``_ONE``), a run (``_GREEDY``, ``_POSSESSIVE``, ``_LAZY``), a group (``_OPEN``), an
        optional group (``_CHOICE``), or an anchor (``_END``).
    :ivar ones: a byte per character of the alphabet, 1 for those that it accepts.
    :ivar number: the number of a capturing group.
    :ivar text: the text of an anchor.
    """

    kind: int
    ones: bytes = b""
    least: int = 0
    most: int = 0
    number: int | None = None
    branches: Sequence[Sequence[_Item]] = ()
    text: str = ""


_Items = Sequence[_Item]


class _Parser:
    """Parses a pattern of common items.

    :param alphabet: all characters.
    """

    def __init__(self, pattern: Pattern[Any], alphabet: Sequence[Any]) -> None:
        text = pattern.pattern
        self._text: str = text.decode("latin-1") if isinstance(text, bytes) else text
        self._encode = (lambda one: one.encode("latin-1")) if isinstance(text, bytes) else str
        self._flags, self._alphabet, self._known = pattern.flags, alphabet, dict[str, bytes]()
        self._prefix = _FLAGS.match(self._text)[0]  # type: ignore[index]  # it may be empty
        self._at, self._groups = len(self._prefix), 0

    def items(self) -> list[_Item]:
        """Return all items.

        :raises _UnknownItemError: there is another item.
        """
        branches = self._branches()
        if self._at < len(self._text):
            raise _UnknownItemError
        return list(branches[0]) if len(branches) == 1 else [_Item(_OPEN, branches=branches)]

    def _take(self, *kinds: str) -> re.Match[str] | None:
        token = _TOKEN.match(self._text, self._at)
        if token is None or token.lastgroup not in kinds:
            return None
        self._at = token.end()
        return token

    def _branches(self) -> list[list[_Item]]:
        branches = [self._row()]
        while self._take("bar"):
            branches.append(self._row())
        return branches

    def _row(self) -> list[_Item]:
        row = list[_Item]()
        while token := self._take("open", "one", "anchor"):
            row.append(self._group(token) if token["open"] else self._single(token))
        return row

    def _group(self, token: re.Match[str]) -> _Item:
        number = None
        if token["open"] != "(?:":
            self._groups = number = self._groups + 1
        group = _Item(_OPEN, number=number, branches=self._branches())
        run = self._take("shut") and self._take("run")
        if run and run["run"] != "?":
            raise _UnknownItemError
        return _Item(_CHOICE, branches=[[group]]) if run else group

    def _single(self, token: re.Match[str]) -> _Item:
        if token["anchor"]:
            return _Item(_END, text=token[0])
        ones, run = self._accepted_by(token[0]), self._take("run")
        if run is None:
            return _Item(_ONE, ones)
        least, most = _bounds(run[2])
        return _Item(_RUNS[run[3]], ones, least, most)

    def _accepted_by(self, one: str) -> bytes:
        """Return a mask of the characters that a single item accepts, by matching each of them."""
        if one not in self._known:
            single = Pattern(self._encode(self._prefix + one), self._flags, option="")
            self._known[one] = bytes(match is not None for match in single.fullmatch_all(self._alphabet))
        return self._known[one]


def _bounds(run: str) -> tuple[int, int]:
    """Return the minimum and maximum length of a run."""
    if run in ("*", "+", "?"):
        return int(run == "+"), 1 if run == "?" else _MOST
    least, comma, most = run[1:-1].partition(",")
    return int(least or 0), int(most) if most else _MOST if comma else int(least)


def _first_of(items: _Items) -> bytes | None:
    """Return a mask of possible first characters; None if the items may be empty.

    :raises _UnknownItemError: the first character is unknown.
    """
    found, needed = _firsts(items)
    return found if needed else None


def _firsts(items: _Items) -> tuple[bytes, bool]:
    """Return a mask of possible first characters, and True if the items have at least one character."""
    found = b""
    for item in items:
        ones, needed = _firsts_of_one(item)
        found = _either(found, ones)
        if needed:
            return found, True
    return found, False


def _firsts_of_one(item: _Item) -> tuple[bytes, bool]:
    if item.kind == _END:
        raise _UnknownItemError
    if not item.branches:
        return item.ones, item.kind == _ONE or item.least > 0
    found, all_need = b"", item.kind == _OPEN
    for branch in item.branches:
        ones, needed = _firsts(branch)
        found, all_need = _either(found, ones), all_need and needed
    return found, all_need


def _either(some: bytes, others: bytes) -> bytes:
    return bytes(map(max, some, others)) if some and others else some or others


class Steps:
    """The steps of a pattern.

    :param slots: the column of each requested group, by its number.
    :param whole: True to match a whole body, as ``fullmatch`` does.
    :param anchored: True to match from the start of a body, as ``match`` does.
    :raises _UnknownItemError: an item cannot be expressed as steps.
    """

    def __init__(self, items: _Items, slots: Mapping[int, int], *, whole: bool, anchored: bool) -> None:
        self._slots, self._steps = slots, list[bytes]()
        rest = list(items)
        begins = bool(rest) and rest[0].text in ("^", r"\A")
        del rest[:begins]
        self._anchored = begins or whole or anchored
        end = rest.pop().text if rest and rest[-1].text in ("$", r"\Z") else ""
        self._ended = bool(end) or whole
        self._before_newline = end == "$" and not whole  # It also matches before a trailing newline.
        first = _first_of(rest)
        self._begin = _ALL if first is None else first
        self._add_all(rest, None)
        if self._ended:
            self._add(_END, target=int(self._before_newline))
        self._program = b"".join(self._steps)

    def capture(self, count: int, ends: bytes, data: bytes) -> Captured:
        """Run the steps over many bodies.

        :param ends: the end of each body, 64-bit integers in native byte order; empty for lines.
        """
        assert _capture is not None  # noqa: S101  # steps are only made if native code is available
        return Captured(*_capture(self._program, len(self._slots), self._begin, self._anchored, count, ends, data))

    def _add_all(self, items: _Items, following: _Items | None) -> None:
        """Append steps.

        :param following: the items after these; None at the end of the pattern.
        """
        for number, item in enumerate(items):
            rest = [*items[number + 1 :], *(following or ())]
            if item.kind == _ONE:
                self._add(_ONE, ones=item.ones)
            elif item.kind in (_GREEDY, _POSSESSIVE):
                self._add(item.kind, item.least, item.most, ones=item.ones)
            elif item.kind == _LAZY:
                if not rest and self._before_newline and item.ones[ord("\n")]:
                    raise _UnknownItemError  # It may end before the last newline, or after it.
                self._add(_LAZY, item.least, item.most, ones=item.ones, until=self._next(rest))
            elif item.kind == _OPEN:
                self._add_group(item, rest)
            elif item.kind == _CHOICE:
                self._add_branches(item.branches, (), rest)
            else:
                raise _UnknownItemError

    def _add_group(self, item: _Item, rest: _Items) -> None:
        slot = None if item.number is None else self._slots.get(item.number)
        if slot is not None:
            self._add(_OPEN, target=slot)
        self._add_branches(item.branches[:-1], item.branches[-1], rest)
        if slot is not None:
            self._add(_SHUT, target=slot)

    def _add_branches(self, branches: Iterable[_Items], last: _Items, rest: _Items) -> None:
        """Append steps for alternatives: the first whose first character matches is tried, and no other."""
        jumps = []
        for branch in branches:
            first = _first_of(branch)
            if first is None:
                raise _UnknownItemError
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
            raise _UnknownItemError
        self._steps.append(_STEP.pack(kind, least, min(most, _MOST), target, ones, until))
        return len(self._steps) - 1

    def _next(self, rest: _Items) -> bytes:
        """Return a mask of the characters that end a lazy run: those after it, none at an anchored end, or any."""
        if not rest:
            return _NONE if self._ended else _ALL
        if rest[0].kind == _ONE:
            return rest[0].ones
        if rest[0].kind == _OPEN and len(rest[0].branches) == 1 and rest[0].branches[0]:
            return self._next(rest[0].branches[0])
        raise _UnknownItemError


def steps_of(
    pattern: Pattern[Any], groups: Sequence[int], *, whole: bool = False, anchored: bool = False
) -> Steps | None:
    """Return the steps of a pattern; None if it cannot be expressed, or native code is missing.

    :param groups: the numbers of the requested groups, in order.
    :param whole: True to match as ``fullmatch`` does.
    :param anchored: True to match as ``match`` does; else as ``search`` does.
    """
    slots = {number: slot for slot, number in enumerate(groups)}
    if _capture is None or len(slots) < len(groups):
        return None
    try:
        alphabet = _BYTES[:128] if isinstance(pattern.pattern, bytes) else _ASCII
        return Steps(_Parser(pattern, alphabet).items(), slots, whole=whole, anchored=anchored)
    except _UnknownItemError:
        return None


def first_bytes(pattern: Pattern[bytes]) -> bytes:
    """Return a mask of 256 bytes: 1 for bytes that a match at the start of a text may begin with."""
    try:
        items = _Parser(pattern, _BYTES).items()
        while items and items[0].text in ("^", r"\A"):
            del items[0]
        found = _first_of(items)
    except _UnknownItemError:
        found = None
    return b"\1" * 256 if found is None else found
