"""Forks: the registry of everything that must be renewed in a forked child.

A child has one thread, and its locks are as the parent's other threads left them. So every object with locks, threads
or descriptors is renewed, lower layers first: a renewed object finds the layers below it ready, whatever was imported
first. A lock can also be held across the fork, so that the child finds its data consistent.
"""

from __future__ import annotations

import enum
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol


class Stage(enum.IntEnum):
    """Order of renewal in a child: lower stages first."""

    LOCKS = 0
    CHANNELS = 1
    SINKS = 2
    PRODUCERS = 3


class Forkable(Protocol):
    """An object to renew in a forked child."""

    def _renew_in_child(self) -> None:
        """Start empty; called in the child, on its only thread. Takes no lock that existed before."""


_functions: dict[Stage, list[Callable[[], None]]] = {stage: [] for stage in Stage}
_objects: dict[Stage, weakref.WeakSet[Forkable]] = {stage: weakref.WeakSet() for stage in Stage}


_held: list[Held] = []
#: The locks of objects, in the order of registration; a thread that has one of them may take one of ``_held``.
_of_objects: list[weakref.ref[Held]] = []
# The locks that the forking thread has taken.
_here = threading.local()
#: Seconds that a fork waits for the locks of objects, whose disks may hang.
_LONGEST_WAIT = 5.0


class Held(Protocol):
    """An ``RLock``; only this kind knows whether the calling thread holds it."""

    def acquire(self, *, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


def hold_across_fork(lock: Held) -> None:
    """Hold ``lock`` during every fork, so that the child finds its data consistent.

    It is released afterwards in parent and child. No thread may hold two such locks at a time.
    """
    _held.append(lock)


def hold_while_it_lives(lock: Held) -> None:
    """Hold an object's ``lock`` during every fork, as long as the lock lives.

    For the calls of SQLite: it has locks of its own, and a child that finds them locked waits forever.
    """
    _of_objects.append(weakref.ref(lock, _of_objects.remove))


def call_in_child(renew: Callable[[], None], stage: Stage) -> None:
    """Register a function to call in every forked child, before the objects of its stage."""
    _functions[stage].append(renew)


def watch_fork(forkable: Forkable, stage: Stage) -> None:
    """Register an object to renew in every forked child, as long as it lives."""
    _objects[stage].add(forkable)


def keep_for_ever(value: object) -> None:
    """Keep an object referenced until the process has ended: a child's copy of it must never be freed, nor closed."""
    import ctypes  # noqa: PLC0415  # only a child needs it

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def _has(lock: Held) -> bool:
    return bool(lock._is_owned())  # type: ignore[attr-defined]  # as threading.Condition asks


def _free_lock() -> Held | None:
    """Return the first lock of an object that this thread does not have; an object may be made during the waits."""
    locks = (known() for known in list(_of_objects))
    return next((lock for lock in locks if lock is not None and not _has(lock)), None)


def _before_fork() -> None:
    """Take all locks. Python forks even if this raises, so the error is raised when all are taken."""
    raised = None
    _here.taken = taken = list[Held]()
    end = time.monotonic() + _LONGEST_WAIT
    while (lock := _free_lock()) is not None and (left := end - time.monotonic()) > 0:
        try:
            if lock.acquire(timeout=left):
                taken.append(lock)
        except BaseException as error:  # noqa: BLE001  # raised when all are taken
            raised = error
    for lock in _held:
        if _has(lock):  # held by a call that a forking signal handler interrupted
            continue
        taken.append(lock)
        while not _has(lock):
            try:
                lock.acquire()
            except BaseException as error:  # noqa: BLE001  # raised when all are taken
                raised = error
    if raised is not None:
        raise raised


def _after_fork() -> None:
    for lock in reversed(_here.taken):
        if _has(lock):
            lock.release()


def _after_fork_in_child() -> None:
    """Renew everything, whatever one renewal raises: a half-renewed child would send its parent's records."""
    raised = list[BaseException]()
    for renew in _renewals():
        try:
            renew()
        except BaseException as error:  # noqa: BLE001  # raised when all are renewed; Python prints it
            raised.append(error)
    if raised:
        raise raised[0] if len(raised) == 1 else BaseExceptionGroup("after a fork, in the child", raised)


def _renewals() -> Iterator[Callable[[], None]]:
    """Yield all functions to call in a child, in order."""
    yield _after_fork
    for stage in Stage:
        yield from _functions[stage]
        for forkable in list(_objects[stage]):
            yield forkable._renew_in_child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
