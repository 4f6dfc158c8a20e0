"""Parses addresses of remote files, and shows them without secrets."""

from __future__ import annotations

import hashlib
import os
import re
from urllib.parse import urlsplit

from ....text.printable import masked

#: The schemes of web servers.
WEB = ("http", "https")
#: The package that fsspec needs for each scheme, and the packages to install; empty if an extra contains them.
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
#: The schemes whose addresses begin with a host rather than a bucket.
HOSTED = ("hdfs", "webhdfs")
#: The schemes whose packages fail in a forked process because they have own threads or a JVM.
FORKLESS = ("hdfs",)
#: The schemes whose addresses may name an account and its host after the bucket: ``container@account.host``.
_ACCOUNTS = ("abfs", "abfss", "az")

# Shorter values of environment variables are not secrets, and would hide ordinary words.
_SECRET_LENGTH = 8
_SECRET_NAME = re.compile("KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL|SAS", re.IGNORECASE)
# The secrets in a connection string of Azure.
_CONNECTION_SECRET = re.compile("(?:AccountKey|SharedAccessSignature)=([^;]+)", re.IGNORECASE)
_MOST_CHARACTERS = 300


def scheme_of(path: str) -> str | None:
    """Return the scheme of a remote path; None for any other path."""
    scheme = path.partition("://")[0].lower() if "://" in path else ""
    return scheme if scheme in SCHEMES else None


def authority_of(address: str) -> str:
    """Return the host of an address, or a container with its account; empty if the settings name them."""
    scheme, authority = scheme_of(address), urlsplit(address).netloc
    return authority if scheme in HOSTED or (scheme in _ACCOUNTS and "@" in authority) else ""


def shown(address: str) -> str:
    """Return an address without its user, password and query, which holds the signature of a signed URL.

    A digest replaces the query, so that two different addresses are shown differently.
    """
    if scheme_of(address) is None:
        return address
    parts = urlsplit(address)
    if parts.scheme.lower() not in WEB:
        # The key of an object may contain any character, so only the text before the host is searched.
        return address.replace(f"{parts.netloc.rpartition('@')[0]}@", "", 1) if parts.password else address
    query = f"?{hashlib.sha256(parts.query.encode()).hexdigest()[:8]}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def has_secret(address: str) -> bool:
    """Return True if a part of the address is hidden."""
    return shown(address) != address.partition("#")[0]


def without_secrets(text: str, address: str) -> str:
    """Return a library's message about an address in one line, without secrets."""
    parts = urlsplit(address)
    secrets = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    secrets += [part for name, value in os.environ.items() for part in _CONNECTION_SECRET.findall(value)]
    secrets = [parts.password or "", *(value for value in secrets if len(value) >= _SECRET_LENGTH)]
    line = " ".join(text.split()).replace(address, shown(address))
    if has_secret(address):
        secrets += [parts.query, parts.netloc.rpartition("@")[0]]
    return masked(line, secrets, least=1)[:_MOST_CHARACTERS]
