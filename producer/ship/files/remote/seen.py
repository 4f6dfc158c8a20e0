"""The metadata and the interface of remote files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from ....spark.errors import SparkJobError

# Attributes that change with a file, as file systems and web servers name them.
_VERSIONS = (
    "etag",
    "md5hash",
    "content-md5",
    "generation",
    "versionid",
    "lastmodified",
    "last_modified",
    "last-modified",
    "modificationtime",
    "modification_time",
    "mtime",
    "updated",
)


class RemoteError(SparkJobError):
    """Raised when a remote file system fails; the message holds no secret."""


class AccessRefusedError(RemoteError):
    """Raised when a remote file system rejects the credentials."""


class NotThereError(RemoteError):
    """Raised when a remote file does not exist."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The metadata of a remote file at the time of a query.

    :ivar address: the address to read it by.
    :ivar size: its size, bytes.
    :ivar version: the attributes that change with it, a ``name=value`` per line; empty if the server sends none.
    :ivar ranged: True if it can be read from any offset.
    :ivar head: its first bytes.
    """

    address: str
    size: int
    version: str
    ranged: bool = True
    head: bytes = b""


class Source(Protocol):
    """An open remote file, read forwards."""

    def seek(self, position: int, /) -> object:
        """Continue reading at another byte."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at least one; nothing at the end.

        :raises RemoteError: they cannot be read.
        """

    def close(self) -> None:
        """Release the connection or file."""


class RemoteFiles(Protocol):
    """A remote file system; each method raises :class:`RemoteError`."""

    def look(self, address: str, head: int) -> Seen:
        """Query the metadata of a file.

        :param head: number of first bytes to read.
        """

    def below(self, address: str) -> list[str] | None:
        """Return the addresses of all files below a directory; None if the address is not a directory."""

    def matches(self, pattern: str) -> list[str]:
        """Return the addresses that match a glob; those of directories end with ``/``."""

    def open(self, seen: Seen, start: int, end: int) -> Source:
        """Open a file.

        :param start: the first byte to read.
        :param end: the byte at which reading probably ends.
        """


def version_of(attributes: Mapping[str, object]) -> str:
    """Return the version of a file from its attributes."""
    known = ((name, value) for name, value in attributes.items() if name.lower() in _VERSIONS and value)
    return "\n".join(sorted(f"{name.lower()}={' '.join(str(value).split())}" for name, value in known))


def is_same(version: str, other: str) -> bool:
    """Return True if two versions may be of the same file: no attribute that both have differs."""
    first, second = (dict(line.split("=", 1) for line in each.splitlines()) for each in (version, other))
    return all(second.get(name, value) == value for name, value in first.items())
