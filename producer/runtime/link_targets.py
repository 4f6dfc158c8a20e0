"""Link targets: decide which symbolic links in a directory may be followed.

A user who may write to a directory can put a link there to a file that only the reader of the directory may read. So a
link is followed only if its target is below a directory that was named or allowed. A glob names the directory before
its first wildcard. One rule comes from Kubernetes: links in a directory ``containers`` may lead to the directory
``pods`` beside it, as in ``/var/log/containers``.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

_CONTAINERS, _PODS = "containers", "pods"


class LinkTargets:
    """Decides which links may be followed.

    :param directories: the named and the allowed directories; they need not exist yet.
    """

    def __init__(self, directories: Iterable[str]) -> None:
        self._directories = tuple(dict.fromkeys(directories))

    def allow(self, target: str) -> bool:
        """Return True if a link may lead to a target.

        :param target: the real path of a file.
        """
        return any(_is_below(target, root) for directory in self._directories for root in _roots(directory))


def opened_path(descriptor: int, path: str) -> str:
    """Return the real path of an open file, since a link may lead elsewhere by now.

    :param path: the path it was opened by, used if the system does not tell.
    """
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def not_followed(target: str, option: str) -> str:
    """Return the message about a link that is not followed.

    :param option: the name of the allowing option, as the user writes it.
    """
    return f"a link to {target}, outside the named directories: it is not followed unless {option} allows it"


def named_directory(pattern: str) -> str:
    """Return the directory that a glob names: the one before its first wildcard."""
    directory = os.path.dirname(pattern)  # no Path: paths may not be UTF-8, and links stay
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
