"""Forks: a child closes its copies of the server's sockets.

A child's copy of a connection would keep it open after the server closes it. A copy of the listener would keep the port
taken. So the child replaces each of these descriptors by one of the null device. The objects that own them stay valid.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any

from ...runtime.forks import Stage, call_in_child, hold_across_fork
from ...runtime.locks import RLock

# Guards _held: servers start and stop in any thread. Held across a fork, so that the child finds it consistent.
_lock = RLock()
_held: dict[int, tuple[socket.socket, Iterable[Any]]] = {}


def close_in_children(listener: socket.socket, connections: Iterable[Any]) -> Callable[[], None]:
    """Register the listener and connections that a forked child closes, and return the function that unregisters them.

    :param connections: objects with a ``transport``.
    """
    with _lock:
        _held[id(listener)] = (listener, connections)

    def forget() -> None:
        with _lock:
            _held.pop(id(listener), None)

    return forget


def _close_in_child() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for listener, connections in list(_held.values()):
        for descriptor in [listener.fileno(), *(_descriptor(connection) for connection in list(connections))]:
            if descriptor >= 0:
                with contextlib.suppress(OSError):
                    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _held.clear()


def _descriptor(connection: Any) -> int:
    transport = connection.transport
    held = transport.get_extra_info("socket") if transport is not None else None
    return held.fileno() if held is not None else -1


hold_across_fork(_lock)
call_in_child(_close_in_child, Stage.LOCKS)
