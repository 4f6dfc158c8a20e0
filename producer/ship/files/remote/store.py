"""Reads object stores and Hadoop's file system, with fsspec.

Each service takes its credentials from its usual environment variables, files or instance roles, and from the
configuration of fsspec (``FSSPEC_S3_ENDPOINT_URL``, ``~/.config/fsspec``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from ....text.extras import how_to_install, is_installed
from ....text.plural import counted
from ...errors import InputError
from . import azure
from .address import HOSTED, STORES, shown, without_secrets
from .seen import AccessRefusedError, NotThereError, RemoteError, Seen, version_of

# Bytes per request; the next block is fetched while one is read.
_BLOCK_BYTES = 8 << 20
# Bytes per request after the expected end, where the last line probably ends soon.
_REST_BYTES = 256 << 10
# Timeout of a request, seconds, so that a wrong address fails soon.
_TIMEOUT = 5
# Schemes whose packages cannot disable their cache of listings, which hides changes of a file. Each query uses a new
# file system.
_CACHING = ("oss",)
# The number of attempts of a file system that retries by itself.
_RETRIES = 3
# An equivalent of `?` in a glob, without that character, and without the slash at which fsspec splits a pattern.
_ONE_SIGN = "[\x01-.0-\U0010ffff]"
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class StoreFiles:
    """The files of one scheme, and of one host or account if the addresses name it.

    :param scheme: one of :data:`~.address.STORES`.
    :param authority: the result of :func:`~.address.authority_of`; empty to use the configuration of fsspec.
    :raises InputError: a package is not installed, or the host is missing.
    """

    def __init__(self, scheme: str, authority: str = "") -> None:
        self._scheme = scheme
        self._authority = authority
        self._process = -1
        self._files: Any = None
        self._connect()

    def _connect(self) -> Any:
        """Return the file system; a forked process needs its own."""
        files = self._files
        if self._process != os.getpid() or self._scheme in _CACHING:
            files = self._files = _file_system(self._scheme, self._authority)
            self._process = os.getpid()
        return files

    def look(self, address: str, head: int) -> Seen:
        files = self._connect()
        with _translated_errors(address):
            path = self._path(address)
            details = files.info(path, **_refreshed(self._scheme))
            if details["type"] != "file":
                raise NotThereError(f"{address}: not found as a file")
            size = int(details["size"] or 0)
            wanted = min(head, size)
            first = _whole(bytes(files.cat_file(path, start=0, end=wanted)), address, 0, wanted) if wanted else b""
        return Seen(address, size, version_of(details), head=first)

    def below(self, address: str) -> list[str] | None:
        files = self._connect()
        with _translated_errors(address):
            if not address.endswith("/") and files.isfile(self._path(address)):
                return None
            found = [self._address(path) for path in sorted(files.find(self._path(address)))]
        if not found:
            raise NotThereError(f"{address}: not found: no such file, and nothing below it")
        return found

    def matches(self, pattern: str) -> list[str]:
        files = self._connect()
        with _translated_errors(pattern):
            found = files.glob(self._path(_without_question_marks(pattern)), detail=True)
        ends = {"directory": "/"}
        return [self._address(path) + ends.get(found[path]["type"], "") for path in sorted(found)]

    def _path(self, address: str) -> str:
        """Return the path that the file system expects."""
        path = f"/{_after_host(address)}" if self._scheme in HOSTED else address
        last = _after_host(address).rstrip("/").rpartition("/")[2]
        # Some packages drop the text after `?` or `#` in a name, and would read another file.
        if not self._files._strip_protocol(path).rstrip("/").endswith(last):
            raise RemoteError(f"{address}: the package for {self._scheme}:// cannot read a name with `?`, `#` or `;`")
        return path

    def _address(self, path: str) -> str:
        """Return the address of a path of the file system."""
        if self._scheme in HOSTED:
            plain = _after_host(path) if _is_address(path) else path.lstrip("/")
            return f"{self._scheme}://{self._authority}/{plain}"
        # `unstrip_protocol` would return the first scheme of the file system, whichever was requested.
        plain = (self._files._strip_protocol(path) if _is_address(path) else path).lstrip("/")
        if self._authority:  # The path begins with the container, and lacks the account.
            plain = f"{self._authority}/{plain.partition('/')[2]}"
        return f"{self._scheme}://{plain}"

    def open(self, seen: Seen, start: int, end: int) -> _Blocks:
        files = self._connect()
        with _translated_errors(seen.address):
            path = self._path(seen.address)
            opened = azure.Blob(files, path) if _is_azure(self._scheme) else files.open(path, "rb", cache_type="none")
        return _Blocks(opened, seen, start, end)


class _Blocks:
    """An open file, of which the next block is fetched ahead."""

    def __init__(self, file: Any, seen: Seen, start: int, end: int) -> None:
        self._file = file
        self._seen = seen
        self._position = start
        self._end = end
        self._ahead: tuple[int, Future[bytes]] | None = None
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="loghub-ship-read")

    def seek(self, position: int) -> None:
        self._position = position

    def read(self, size: int) -> bytes:
        if self._position >= self._seen.size:
            return b""
        with _translated_errors(self._seen.address):
            data = self._block().result()
        if not data:
            raise RemoteError(f"{shown(self._seen.address)}: ended at byte {self._position} of {self._seen.size}")
        self._position += len(data)
        if self._position < self._end:
            self._ahead = self._position, self._fetch(self._position)
        return data

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._file.close()

    def _block(self) -> Future[bytes]:
        """Return the block at the current position."""
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] == self._position else self._fetch(self._position)

    def _fetch(self, position: int) -> Future[bytes]:
        left = self._end - position
        size = min(_BLOCK_BYTES, left if left > 0 else _REST_BYTES, self._seen.size - position)

        def fetch() -> bytes:
            self._file.seek(position)
            return _whole(bytes(self._file.read(size)), self._seen.address, position, size)

        return self._threads.submit(fetch)


def _after_host(address: str) -> str:
    """Return the part of an address after the host."""
    return address.partition("://")[2].partition("/")[2]


def _is_address(path: str) -> bool:
    """Return True if the path begins with a scheme."""
    return "/" not in path.partition("://")[0] and "://" in path


def _is_azure(scheme: str) -> bool:
    return STORES[scheme][0] == "adlfs"


def _without_question_marks(pattern: str) -> str:
    """Return an equivalent glob without ``?``, as some packages drop the text after it as a query."""
    return re.sub(r"(\[[^]]*])|\?", lambda found: found[1] or _ONE_SIGN, pattern)


def _whole(data: bytes, address: str, position: int, size: int) -> bytes:
    """Check that the data has the requested length: some servers send an error in place of the bytes.

    :raises RemoteError: the length differs. Empty data is returned, as it may mark the end.
    """
    if len(data) == size + 1:  # ossfs treats the end of a range as inclusive.
        return data[:size]
    if data and len(data) != size:
        raise RemoteError(
            f"{shown(address)}: the server sent {counted(len(data), 'byte')} at byte {position} instead of {size}"
        )
    return data


def _file_system(scheme: str, host: str) -> Any:
    package, install = STORES[scheme]
    missing = next((name for name in ("fsspec", package) if not is_installed(name)), None)
    if missing is not None:
        how = f"pip install {install}" if install else how_to_install("s3")
        raise InputError(f"{scheme}:// needs the package {missing}, which is not installed: {how}")
    import fsspec

    configured = fsspec.config.conf.get(scheme, {})
    options = {name: value for name, value in _options(scheme).items() if name not in configured}
    if scheme not in (*HOSTED, *_CACHING):  # Hadoop's file systems keep no listings, and hdfs-native lacks this option.
        options["use_listings_cache"] = False
    if scheme == "webhdfs" and not host and "host" not in configured:
        raise InputError("webhdfs:// needs the host of the name node: webhdfs://HOST:9870/path")
    with _translated_errors(f"{scheme}://{host}"), _hadoops_own_libraries(scheme):
        files, _ = fsspec.core.url_to_fs(f"{scheme}://{host}/", skip_instance_cache=True, **options)
    if _is_azure(scheme):
        azure.prepare(files)
    if hasattr(files, "retries"):
        files.retries = _RETRIES
    return files


@contextmanager
def _hadoops_own_libraries(scheme: str) -> Iterator[None]:
    """Raise :class:`InputError` with the packages to install if Hadoop's libraries are missing."""
    try:
        yield
    except OSError as error:
        if scheme == "hdfs" and "Unable to load lib" in str(error):
            raise InputError(
                "hdfs:// needs the package hdfs-native, which is not installed: pip install hdfs-native; or Java with "
                "Hadoop's libhdfs and its CLASSPATH"
            ) from error
        raise


def _options(scheme: str) -> dict[str, Any]:
    if STORES[scheme][0] != "s3fs":
        return {}
    attempts = {"max_attempts": 1}
    return {"config_kwargs": {"connect_timeout": _TIMEOUT, "read_timeout": 6 * _TIMEOUT, "retries": attempts}}


def _refreshed(scheme: str) -> dict[str, Any]:
    return {"refresh": True} if STORES[scheme][0] == "s3fs" else {}


def _is_refusal(error: Exception) -> bool:
    """Return True if an error means that the credentials were rejected; each package has its own errors."""
    named = re.search("Credential|Authentication", type(error).__name__) is not None
    return isinstance(error, PermissionError) or named or getattr(error, "status_code", 0) in _REFUSED


@contextmanager
def _translated_errors(address: str) -> Iterator[None]:
    try:
        yield
    except (RemoteError, InputError):
        raise
    except FileNotFoundError as error:
        raise NotThereError(f"{shown(address)}: not found") from error
    # Each package raises its own errors, and those of its dependencies.
    except Exception as error:
        reason = without_secrets(f"{type(error).__name__}: {error}", address)
        if _is_refusal(error):
            raise AccessRefusedError(
                f"{shown(address)}: access refused: {reason}; credentials come from the environment and the files of "
                "that service, on every machine that reads"
            ) from error
        raise RemoteError(f"{shown(address)}: {reason}") from error
