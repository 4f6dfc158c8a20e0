"""Finds remote files: resolves addresses, and queries the metadata of each file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ...errors import InputError
from .address import WEB, scheme_of, shown
from .choose import files_of
from .seen import RemoteError, RemoteFiles, Seen

# Concurrent queries: each takes a request or two.
_AT_A_TIME = 16


def remote_addresses(path: str) -> dict[str, bool]:
    """Return the addresses of the files that a path matches; the value is True if a directory walk found the file.

    :raises InputError: there are none, or they cannot be listed.
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
    """Query the metadata of files concurrently; an error is yielded instead of raised.

    :param head: number of first bytes to read of each.
    """

    def look(address: str) -> tuple[str, Seen | RemoteError]:
        try:
            return address, files_of(address).look(address, head)
        except RemoteError as error:
            return address, error

    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="loghub-ship-look") as threads:
        yield from threads.map(look, addresses)


def _is_there(files: RemoteFiles, path: str) -> bool:
    """Return True if a path with wildcards is the exact name of a file."""
    if scheme_of(path) in WEB:
        return False
    try:
        files.look(path, 0)
    except RemoteError:
        return False
    return True


def _is_glob(path: str) -> bool:
    """Return True if a path has wildcards. In a URL, ``?`` begins a query, and brackets enclose an IPv6 host."""
    if scheme_of(path) in WEB:
        return "*" in path.partition("?")[0]
    return re.search(r"[*?[]", path) is not None
