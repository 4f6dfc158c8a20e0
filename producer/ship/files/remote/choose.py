"""Which file system an address belongs to."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from .address import HOSTED, WEB, scheme_of
from .seen import RemoteFiles
from .store import StoreFiles
from .web import WebFiles


def files_of(address: str) -> RemoteFiles:
    """What reads an address.

    :raises InputError: a package is missing.
    """
    scheme = scheme_of(address) or ""
    return _files(scheme, urlsplit(address).netloc if scheme in HOSTED else "")


@lru_cache(maxsize=16)
def _files(scheme: str, host: str) -> RemoteFiles:
    return WebFiles() if scheme in WEB else StoreFiles(scheme, host)
