"""Stores of objects: a disk, an object store, or another file system.

=============  ==================================================================
a disk         written under a hidden name, synced, and then renamed
S3 and others  one request: an object exists as a whole, or not at all
HDFS, others   written under a hidden name, and then renamed
=============  ==================================================================

All but the disk use fsspec, and the package that it needs for each.
"""

from __future__ import annotations

import contextlib
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ....model.errors import ConfigError
from ....runtime.whole_file import sync_directory, write_whole
from ....text.extras import how_to_install

#: Schemes of stores where an object appears as a whole.
_WHOLE = ("s3", "s3a", "oss", "gs", "gcs", "abfs", "abfss", "az", "adl")
#: Maximum bytes of a name on a disk or in HDFS, and of a key in an object store.
_MOST_NAME, _MOST_KEY = 255, 1024
#: Errors of a single path, while other paths can be written. An operator can fix only those of the second set.
_OF_PATHS = frozenset({errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL})
_OF_PLACES = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EACCES, errno.EPERM})
#: Seconds and attempts of a request to S3; the agent retries a failed delivery.
_S3_SECONDS, _S3_ATTEMPTS = 10, 2


class PathRefusedError(Exception):
    """Raised if a path cannot be written although others can.

    :ivar permanent: True if such a path can never be written.
    """

    def __init__(self, error: BaseException, *, permanent: bool) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.permanent = permanent


class Store(ABC):
    """A place where objects are stored.

    :ivar most_name: maximum bytes of a part of a path; None for no limit.
    """

    most_name: int | None = _MOST_NAME

    def hidden(self, path: str) -> str | None:
        """Return the name under which an object is written first; None if it is written directly."""
        return _hidden(path)

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Store an object as a whole; one that exists under this name is the same.

        :raises PathRefusedError: the path cannot be written.
        :raises Exception: the object is not stored.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file left under a hidden name, if it exists."""

    @abstractmethod
    def close(self) -> None:
        """Close connections."""


def store_of(path: str, options: Mapping[str, str]) -> Store:
    """Return the store of a path."""
    scheme = scheme_of(path)
    fixed = path.partition("%")[0].rpartition("/")[0] if "%" in path else path
    if scheme in ("", "file"):
        return _Disk(Path(fixed.removeprefix("file://") or "/"))
    if scheme in _WHOLE:
        return _Whole(scheme, options, is_fixed="/" in fixed.partition("://")[2] or "%" not in path)
    return _Moving(scheme, options)


def scheme_of(path: str) -> str:
    """Return the scheme of a path; empty for a path of this machine."""
    return path.partition("://")[0].lower() if "://" in path else ""


def check_scheme(path: str) -> None:
    """Check that the packages for the path's store are installed.

    :raises ConfigError: one is missing.
    """
    scheme = scheme_of(path)
    if scheme in ("", "file"):
        return
    try:
        import fsspec

        fsspec.get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise ConfigError("path", f"cannot be used: {error}; {_install(scheme)}", path) from error


def _install(scheme: str) -> str:
    if scheme in ("s3", "s3a"):
        return how_to_install("s3")
    return f"pip install fsspec and its package for {scheme}://, which fsspec's documentation names"


def _hidden(path: str) -> str:
    """Return the hidden name beside a path; readers of directories skip such names."""
    head, slash, name = path.rpartition("/")
    return f"{head}{slash}.{name}~"


class _Disk(Store):
    """Store on a disk.

    :param fixed: the directory below which events choose paths.
    """

    def __init__(self, fixed: Path) -> None:
        self._fixed = fixed

    def put(self, path: str, data: bytes) -> None:
        try:
            self._put(Path(path.removeprefix("file://")), data)
        except OSError as error:
            if self._is_of_path(error):
                raise PathRefusedError(error, permanent=error.errno in _OF_PATHS) from error
            raise

    def _is_of_path(self, error: OSError) -> bool:
        """Return True for an error of a name, while the directory above is writable."""
        if error.filename is None or error.errno not in _OF_PATHS | _OF_PLACES:
            return False
        return self._fixed.is_dir() and os.access(self._fixed, os.W_OK | os.X_OK)

    def _put(self, target: Path, data: bytes) -> None:
        draft = Path(_hidden(str(target)))
        _make(target.parent)
        write_whole(target, data, draft)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            Path(path.removeprefix("file://")).unlink()

    def close(self) -> None:
        pass


def _make(directory: Path) -> None:
    """Create a directory, and sync it and its new parents, so that they survive a power cut."""
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_directory(each.parent)


class _Fsspec(Store):
    def __init__(self, scheme: str, options: Mapping[str, str]) -> None:
        self._scheme, self._options = scheme, options
        self._connected: Any = None

    @property
    def _files(self) -> Any:
        if self._connected is None:
            import fsspec

            more: dict[str, Any] = {"use_listings_cache": False}
            if self._scheme in ("s3", "s3a"):
                retries = {"max_attempts": 1}
                more["config_kwargs"] = {"connect_timeout": _S3_SECONDS, "read_timeout": 60, "retries": retries}
            self._connected = fsspec.filesystem(self._scheme, skip_instance_cache=True, **(more | dict(self._options)))
            if hasattr(self._connected, "retries"):
                self._connected.retries = _S3_ATTEMPTS
        return self._connected

    def close(self) -> None:
        files, self._connected = self._connected, None
        if getattr(files, "_s3", None) is not None:
            files.close_session(files.loop, files._s3)


class _Whole(_Fsspec):
    """Store where an object appears as a whole.

    :param is_fixed: True if all events go to the same bucket.
    """

    most_name = None

    def __init__(self, scheme: str, options: Mapping[str, str], *, is_fixed: bool) -> None:
        super().__init__(scheme, options)
        self._is_fixed = is_fixed

    def hidden(self, path: str) -> None:
        pass

    def put(self, path: str, data: bytes) -> None:
        key = path.partition("://")[2].partition("/")[2]
        if len(key.encode()) > _MOST_KEY:
            long = OSError(errno.ENAMETOOLONG, f"a key of more than {_MOST_KEY} bytes")
            raise PathRefusedError(long, permanent=True)
        try:
            self._files.pipe_file(path, data)
        except Exception as error:
            if not self._is_fixed and (isinstance(error, FileNotFoundError | PermissionError) or _is_invalid(error)):
                raise PathRefusedError(error, permanent=_is_invalid(error)) from error
            raise

    def remove(self, path: str) -> None:
        pass


def _is_invalid(error: Exception) -> bool:
    """Return True if the S3 client refuses the bucket's name; its error class is in an optional package."""
    return type(error).__name__ == "ParamValidationError"


class _Moving(_Fsspec):
    def put(self, path: str, data: bytes) -> None:
        files, draft = self._files, _hidden(path)
        if files.exists(path):  # moved by an attempt whose answer was lost
            return
        files.makedirs(str(PurePosixPath(files._strip_protocol(path)).parent), exist_ok=True)
        files.pipe_file(draft, data)
        files.mv(draft, path)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm_file(path)
