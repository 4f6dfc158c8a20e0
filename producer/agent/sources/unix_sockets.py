"""Unix sockets as addresses to listen on: ``unix:`` and an absolute path, such as ``unix:/dev/log``.

The socket is removed when its source stops. One that a killed process left is replaced; one that is in use is not.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator

from ...model.errors import ConfigError

PREFIX = "unix:"
#: Maximum bytes of a path: the system's limit on Linux and macOS, with a NUL.
_LONGEST_PATH = 103
_MODE = re.compile(r"[0-7]{3,4}")
_CREDENTIALS = struct.Struct("3i")  # the process, its user and its group


def is_unix(bind: str) -> bool:
    """Return True if an address to listen on is a Unix socket."""
    return bind.startswith(PREFIX)


def check_unix(bind: str, mode: str) -> None:
    """Check the path of a Unix socket, and its permissions.

    :raises ConfigError: one is invalid.
    """
    path = bind.removeprefix(PREFIX)
    if is_unix(bind) and (not path.startswith("/") or len(os.fsencode(path)) > _LONGEST_PATH):
        rule = f"must be unix: and an absolute path of at most {_LONGEST_PATH} bytes"
        raise ConfigError("bind", rule, bind)
    if _MODE.fullmatch(mode) is None:
        raise ConfigError("socket_mode", "must be octal permissions, such as 660", mode)


@contextlib.contextmanager
def unix_listener(bind: str, kind: socket.SocketKind, mode: str) -> Iterator[socket.socket]:
    """Bind a Unix socket for the block, and remove it after it.

    :raises OSError: the path is in use, or cannot be written; the message names it.
    """
    path = bind.removeprefix(PREFIX)
    with socket.socket(socket.AF_UNIX, kind) as listener:
        try:
            _remove_stale(path, kind)
            os.fchmod(listener.fileno(), int(mode, 8))  # on Linux, the socket never has more permissions than these
            listener.bind(path)
            os.chmod(path, int(mode, 8))
            own = os.stat(path)
        except OSError as error:
            raise OSError(error.errno, f"{path}: {error.strerror or error}") from error
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(path), own):
                    os.unlink(path)


def peer_of(accepted: socket.socket) -> str:
    """Return the user of the process that connected, as ``uid 1000``; ``unix`` where the system does not say it."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return "unix"
    return f"uid {_CREDENTIALS.unpack(accepted.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[1]}"


def _remove_stale(path: str, kind: socket.SocketKind) -> None:
    """Remove a socket that no process has open."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(17, "a file that is not a socket has this path", path)
        with socket.socket(socket.AF_UNIX, kind) as trial:
            try:
                trial.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            else:
                raise OSError(98, "it is in use", path)
