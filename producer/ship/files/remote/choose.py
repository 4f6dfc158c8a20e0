"""Which file system an address belongs to."""

from __future__ import annotations

from functools import lru_cache

from .address import WEB, scheme_of
from .seen import RemoteFiles
from .store import StoreFiles
from .web import WebFiles


def files_of(address: str) -> RemoteFiles:
    """What reads an address.

    :raises InputError: a package is missing.
    """
    return _files(scheme_of(address) or "")


@lru_cache(maxsize=16)
def _files(scheme: str) -> RemoteFiles:
    return WebFiles() if scheme in WEB else StoreFiles(scheme)
