"""Who may not wait: a finalizer, or a handler of a signal, that has interrupted a call which holds what others need.

A lock does not tell whose it is, but the stack of the thread does, by the calls that stand on it: those that hold one
are marked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import dropwhile
from types import CodeType, FrameType
from typing import TypeVar

_Call = TypeVar("_Call", bound=Callable[..., object])

_holding: set[CodeType] = set()
_waiting: set[CodeType] = set()
_PACKAGE = __name__.partition(".")[0]


def may_hold(call: _Call) -> _Call:
    """Mark a function that holds locks, but for when it waits; it costs its calls nothing."""
    _holding.add(call.__code__)
    return call


def waits(call: _Call) -> _Call:
    """Mark one that waits, with no lock held by whoever calls it."""
    _waiting.add(call.__code__)
    return call


def interrupts_holder() -> bool:
    """Return True if the caller is a finalizer or signal handler that interrupted a marked function on this thread."""
    frames = list(_frames(sys._getframe(2)))
    handler = dropwhile(_is_ours, frames)
    interrupted = next(dropwhile(lambda frame: not _is_ours(frame), handler), None)
    if interrupted is not None and interrupted.f_code in _waiting:
        return False
    return any(frame.f_code in _holding for frame in frames)


def stands_on(call: Callable[..., object]) -> bool:
    """Whether a function is being called on this thread: then a handler of a signal has interrupted it."""
    return any(frame.f_code is call.__code__ for frame in _frames(sys._getframe(1)))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE
