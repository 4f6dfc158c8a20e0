"""What a fork of this process must not keep: the server's sockets.

A child that holds a copy of a connection keeps it open when the server closes it, and one that holds the listener
keeps the port taken. So in a child each of these descriptors is pointed at nothing; the objects that own them stay
valid.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ...runtime.forks import Stage, call_in_child, hold_across_fork

# Guards _held: servers start and stop in any thread. Taken across a fork, so that a child finds it whole.
_lock = threading.RLock()
_held: dict[int, tuple[socket.socket, Iterable[Any]]] = {}


def close_in_children(listener: socket.socket, connections: Iterable[Any]) -> Callable[[], None]:
    """From now on a fork gives up ``listener`` and ``connections`` (objects with a ``transport``), until the result is
    called.
    """
    with _lock:
        _held[id(listener)] = (listener, connections)

    def forget() -> None:
        with _lock:
            _held.pop(id(listener), None)

    return forget


def _give_up_in_child() -> None:
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
call_in_child(_give_up_in_child, Stage.LOCKS)
