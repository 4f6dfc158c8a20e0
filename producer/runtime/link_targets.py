"""Where symbolic links may lead that are found in directories: below one that was named, or allowed.

Who may write to a directory may also put a link there, to a file that only the reader of the directory may read. So a
link is followed only where its target lies below a directory that was named (a glob names the one before its first
wildcard) or allowed. One rule comes with Kubernetes: the links of a directory ``containers`` lead to the directory
``pods`` beside it, as those of ``/var/log/containers`` do.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

_CONTAINERS, _PODS = "containers", "pods"


class LinkTargets:
    """Decides which links may be followed.

    :param directories: those that were named or allowed; they need not exist yet.
    """

    def __init__(self, directories: Iterable[str]) -> None:
        self._directories = tuple(dict.fromkeys(directories))

    def allow(self, target: str) -> bool:
        """Return True if a link may lead to a target.

        :param target: the real path of a file.
        """
        return any(_is_below(target, root) for directory in self._directories for root in _roots(directory))


def opened_path(descriptor: int, path: str) -> str:
    """Return the real path of a file that was opened: a link may lead elsewhere by now.

    :param path: by which it was opened; it decides where the system does not tell.
    """
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def not_followed(target: str, option: str) -> str:
    """Say why a link is not followed.

    :param option: its name where the user gives it.
    """
    return f"a link to {target}, below no directory that was named: it is not followed, unless {option} allows it"


def named_directory(pattern: str) -> str:
    """Return the directory that a glob names: the one before its first wildcard."""
    directory = os.path.dirname(pattern)  # paths may be no UTF-8, and links stay
    while glob.has_magic(directory):
        directory = os.path.dirname(directory)
    return directory


def _roots(directory: str) -> Iterable[str]:
    real = os.path.realpath(directory)
    yield real
    folder, name = os.path.split(real)
    if name == _CONTAINERS:
        yield os.path.join(folder, _PODS)


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
