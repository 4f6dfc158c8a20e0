"""Looks for remote files: what an address stands for, and what each of the files is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ...errors import InputError
from .address import WEB, scheme_of, shown
from .choose import files_of
from .seen import RemoteError, RemoteFiles, Seen

# Files that are looked at at a time: each look is a request or two, and waits.
_AT_A_TIME = 16


def remote_addresses(path: str) -> dict[str, bool]:
    """The addresses of the files that a path stands for, and whether each was found by a walk through a directory.

    :raises InputError: there are none, or they cannot be listed; says why.
    """
    try:
        files = files_of(path)
        matches = files.matches(path) if _is_glob(path) and not _is_there(files, path) else [path]
        if not matches:
            raise InputError(f"{shown(path)}: no file matches this pattern")
        found: dict[str, bool] = {}
        for match in matches:
            below = files.below(match) if match == path or match.endswith("/") else None
            found |= {match: False} if below is None else dict.fromkeys(below, True)
    except RemoteError as error:
        raise InputError(str(error)) from error
    return found


def look_at(addresses: Iterable[str], head: int) -> Iterator[tuple[str, Seen | RemoteError]]:
    """Look at files.

    :param head: how many first bytes of each are wanted.
    """

    def look(address: str) -> tuple[str, Seen | RemoteError]:
        try:
            return address, files_of(address).look(address, head)
        except RemoteError as error:
            return address, error

    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="loghub-ship-look") as threads:
        yield from threads.map(look, addresses)


def _is_there(files: RemoteFiles, path: str) -> bool:
    """Whether a path with wildcards is the very name of a file, as it may be on a disk, too."""
    if scheme_of(path) in WEB:
        return False
    try:
        files.look(path, 0)
    except RemoteError:
        return False
    return True


def _is_glob(path: str) -> bool:
    """Whether it has wildcards. In an address of the web ``?`` begins a query, and brackets are of numbers of hosts."""
    if scheme_of(path) in WEB:
        return "*" in path.partition("?")[0]
    return re.search(r"[*?[]", path) is not None
