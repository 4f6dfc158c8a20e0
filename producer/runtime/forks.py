"""What a fork means to this package: the one registry of what has to be made anew in the child.

A child has one thread, and locks as its parent's other threads left them. So whatever holds locks, threads or
descriptors is told, from below: who is told later finds what stands under it ready, whatever was imported first. A
lock whose data the child needs whole can be held across the fork.
"""

from __future__ import annotations

import enum
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol


class Stage(enum.IntEnum):
    """Who is told when: the lower first."""

    LOCKS = 0
    CHANNELS = 1
    SINKS = 2
    PRODUCERS = 3


class Forkable(Protocol):
    """What a fork concerns."""

    def _renew_in_child(self) -> None:
        """Start empty; called in the child, in its only thread. Takes no lock that existed before."""


_functions: dict[Stage, list[Callable[[], None]]] = {stage: [] for stage in Stage}
_objects: dict[Stage, weakref.WeakSet[Forkable]] = {stage: weakref.WeakSet() for stage in Stage}


_held: list[Held] = []
# Of a thread that forks: those of _held that it has taken for that.
_here = threading.local()


class Held(Protocol):
    """An ``RLock``: of others a thread cannot tell whether it has them."""

    def acquire(self) -> bool:
        """See :func:`threading.RLock`."""

    def release(self) -> None:
        """Likewise."""


def hold_across_fork(lock: Held) -> None:
    """Take ``lock`` before every fork and give it back after it, in parent and child: the child finds whole what it
    guards. Nobody may take two such locks at a time.
    """
    _held.append(lock)


def call_in_child(renew: Callable[[], None], stage: Stage) -> None:
    """Call a module's function in every forked child, before the objects of its stage are told."""
    _functions[stage].append(renew)


def watch_fork(forkable: Forkable, stage: Stage) -> None:
    """Tell ``forkable`` about forks, as long as it lives."""
    _objects[stage].add(forkable)


def _has(lock: Held) -> bool:
    return bool(lock._is_owned())  # type: ignore[attr-defined]  # as threading.Condition asks


def _before_fork() -> None:
    """Python forks whatever is raised here, also by a handler of signals: first all is taken."""
    raised = None
    _here.taken = taken = list[Held]()
    for lock in _held:
        if _has(lock):  # by a call that a handler, which forks, has interrupted
            continue
        taken.append(lock)
        while not _has(lock):
            try:
                lock.acquire()
            except BaseException as error:  # noqa: BLE001  # raised when all is taken
                raised = error
    if raised is not None:
        raise raised


def _after_fork() -> None:
    for lock in reversed(_here.taken):
        if _has(lock):
            lock.release()


def _after_fork_in_child() -> None:
    """Whatever one of them raises, the others are told: a child that is renewed in part sends what is its parent's."""
    raised = list[BaseException]()
    for renew in _everybody():
        try:
            renew()
        except BaseException as error:  # noqa: BLE001  # raised when all are told: Python prints it
            raised.append(error)
    if raised:
        raise raised[0] if len(raised) == 1 else BaseExceptionGroup("after a fork, in the child", raised)


def _everybody() -> Iterator[Callable[[], None]]:
    """What is to be called in a child, in order."""
    yield _after_fork
    for stage in Stage:
        yield from _functions[stage]
        for forkable in list(_objects[stage]):
            yield forkable._renew_in_child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
