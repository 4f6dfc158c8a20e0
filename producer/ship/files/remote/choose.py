"""Chooses the file system of an address."""

from __future__ import annotations

from functools import lru_cache

from .address import WEB, authority_of, scheme_of
from .seen import RemoteFiles
from .store import StoreFiles
from .web import WebFiles


def files_of(address: str) -> RemoteFiles:
    """Return the file system that reads an address.

    :raises InputError: a package is missing.
    """
    scheme = scheme_of(address) or ""
    return _files(scheme, authority_of(address))


@lru_cache(maxsize=16)
def _files(scheme: str, authority: str) -> RemoteFiles:
    return WebFiles() if scheme in WEB else StoreFiles(scheme, authority)
