"""Addresses of remote files: which there are, and how they are shown, without what is secret in them."""

from __future__ import annotations

import hashlib
import os
import re
from urllib.parse import urlsplit

#: Those that a web server answers.
WEB = ("http", "https")
#: By scheme: the package that fsspec needs for it, and what to install; nothing where an extra has it.
STORES = {
    "s3": ("s3fs", ""),
    "s3a": ("s3fs", ""),
    "oss": ("ossfs", "ossfs"),
    "gs": ("gcsfs", "gcsfs"),
    "gcs": ("gcsfs", "gcsfs"),
    "abfs": ("adlfs", "adlfs"),
    "abfss": ("adlfs", "adlfs"),
    "az": ("adlfs", "adlfs"),
    "hdfs": ("pyarrow", "fsspec hdfs-native"),
    "webhdfs": ("requests", "fsspec requests"),
}
SCHEMES = (*WEB, *STORES)
#: Those whose addresses begin with the host that is asked, rather than with a bucket.
HOSTED = ("hdfs", "webhdfs")
#: Those whose packages work in no fork of a process that has used them: they have threads of their own, or a JVM.
FORKLESS = ("hdfs",)
#: Those whose addresses may name an account and its host behind the bucket: ``container@account.host``.
_ACCOUNTS = ("abfs", "abfss", "az")

# Shorter values of the environment are no secrets, and would blot out ordinary words.
_SECRET_LENGTH = 8
_SECRET_NAME = re.compile("KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|SAS", re.IGNORECASE)
# In a connection string of Azure.
_CONNECTION_SECRET = re.compile("(?:AccountKey|SharedAccessSignature)=([^;]+)", re.IGNORECASE)
_MOST_SAID = 300


def scheme_of(path: str) -> str | None:
    """The scheme of a remote path that can be read; None for any other path."""
    scheme = path.partition("://")[0].lower() if "://" in path else ""
    return scheme if scheme in SCHEMES else None


def authority_of(address: str) -> str:
    """What an address says of where to ask: a host, or a container and its account; empty where others say that."""
    scheme, authority = scheme_of(address), urlsplit(address).netloc
    return authority if scheme in HOSTED or (scheme in _ACCOUNTS and "@" in authority) else ""


def shown(address: str) -> str:
    """An address without what may be secret in it: user, password, query (in which signed ones have their key).

    Two addresses that differ are shown differently, though: by a digest of their query.
    """
    if scheme_of(address) is None:
        return address
    parts = urlsplit(address)
    if parts.scheme.lower() not in WEB:
        # A key of a bucket may have any signs: only what stands before the host is looked at.
        return address.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if parts.password else address
    query = f"?{hashlib.sha256(parts.query.encode()).hexdigest()[:8]}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def has_secret(address: str) -> bool:
    """Whether a part of the address is not shown."""
    return shown(address) != address.partition("#")[0]


def without_secrets(text: str, address: str) -> str:
    """What a library has said of an address, in one line that may be shown."""
    parts = urlsplit(address)
    secrets = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    secrets += [part for name, value in os.environ.items() for part in _CONNECTION_SECRET.findall(value)]
    secrets = [parts.password or "", *(value for value in secrets if len(value) >= _SECRET_LENGTH)]
    line = " ".join(text.split()).replace(address, shown(address))
    if has_secret(address):
        secrets += [parts.query, parts.netloc.rpartition("@")[0]]
    for secret in filter(None, secrets):
        line = line.replace(secret, "…")
    return line[:_MOST_SAID]
