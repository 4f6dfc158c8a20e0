"""TLS files: errors that name the file, and new files used without a restart.

A certificate is renewed every few weeks or months, outside the agent, at the same path. So the files are checked before
a connection uses them. If certificate and key do not match, as between the writes of the two, the former pair stays in
use.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from ...model.errors import ConfigError
from ...runtime.clock import Clock
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ..config.options import missing_file
from ..events.interfaces import Context
from ..recoveries import recoveries

_log = get_logger("loghub.agent")

#: Seconds between two checks.
_CHECK_SECONDS = 1.0
#: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_OUT_OF_TIME = (9, 10)
#: X509_V_ERR_INVALID_PURPOSE: a client's certificate in the role of a server.
_WRONG_PURPOSE = 26
#: X509_V_FLAG_NO_CHECK_TIME.
_NO_CHECK_TIME = 0x200000
#: The counter with the certificate's time of expiry.
_EXPIRES = "CertificateExpiryTimestampSeconds"
Made = TypeVar("Made")
_Seen = tuple[tuple[int, int, int] | None, ...]


def load_own(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Load a certificate and key into a context.

    :param key: the file of the key; None if it is in the certificate's file.
    :raises ConfigError: a file cannot be used; the error names it.
    """
    where = "certificate" if key is None else "key"

    def ask() -> NoReturn:  # without it OpenSSL would ask on the terminal, and block
        rule = "is encrypted, and the agent cannot ask for a passphrase: use a key without one"
        raise ConfigError(where, rule, str(key or certificate))

    for error in (*missing_file("certificate", certificate), *missing_file("key", key)):
        raise error
    try:
        context.load_cert_chain(certificate, key, password=ask)
    except ssl.SSLError as failure:
        if failure.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(where, "does not match the certificate", str(key or certificate)) from failure
        raise ConfigError("certificate", f"cannot be used: {failure}", str(certificate)) from failure


def load_authorities(context: ssl.SSLContext, name: str, path: Path) -> None:
    """Make a context trust the certificates of a file.

    :param name: the name of the option.
    :raises ConfigError: the file cannot be used.
    """
    for error in missing_file(name, path):
        raise error
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as failure:
        raise ConfigError(name, f"cannot be used: {failure}", str(path)) from failure


def validity_errors(certificate: Path | None, key: Path | None) -> Iterator[ConfigError]:
    """Yield an error if peers refuse a certificate because it has expired or is not valid yet."""
    if certificate is None:
        return
    try:
        _verified(certificate, key)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OUT_OF_TIME:
            yield ConfigError("certificate", f"is refused by peers: {error.verify_message}", str(certificate))
    except (ConfigError, ssl.SSLError):
        return  # reported where the files are used


def end_of(certificate: Path | None, key: Path | None) -> int | None:
    """Return a certificate's time of expiry, seconds since the epoch; None if there is none, or it is unreadable."""
    if certificate is None:
        return None
    try:
        seen = _verified(certificate, key, _NO_CHECK_TIME)
    except (ConfigError, ssl.SSLError):
        return None
    return ssl.cert_time_to_seconds(str(seen["notAfter"]))


def _verified(certificate: Path, key: Path | None, flags: int = 0) -> Mapping[str, Any]:
    """Verify a certificate in a handshake with itself in memory, and return its fields as OpenSSL parses them.

    :param flags: further flags of the verification.
    :raises ssl.SSLCertVerificationError: a peer would refuse the certificate.
    :raises ConfigError: the files cannot be used.
    """
    try:
        return _shown(certificate, key, flags, by_client=False)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code != _WRONG_PURPOSE:
            raise
        return _shown(certificate, key, flags, by_client=True)


def _shown(certificate: Path, key: Path | None, flags: int, *, by_client: bool) -> Mapping[str, Any]:
    client, server = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    load_own(server, certificate, key)
    if by_client:
        load_own(client, certificate, key)
    judge = server if by_client else client
    judge.verify_mode = ssl.CERT_REQUIRED
    judge.verify_flags |= ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | flags)
    load_authorities(judge, "certificate", certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for end in ends * 3:  # TLS 1.2 needs three rounds
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[by_client].getpeercert() or {}


class WatchedFiles:
    """Files that may be replaced; checked at most once a second.

    :param paths: paths of the files, which may be missing.
    :ivar has_changed_again: True if the last check found a change since the one before.
    """

    def __init__(self, paths: Iterable[Path | None], clock: Clock) -> None:
        self.paths, self._clock = list(dict.fromkeys(path for path in paths if path is not None)), clock
        self._used = self._found = self._look()
        self._next_check = clock.monotonic() + _CHECK_SECONDS
        self.has_changed_again = False

    def changed(self) -> bool:
        """Return True if the files differ from those in use; False also if the last check is too recent."""
        now = self._clock.monotonic()
        if not self.paths or now < self._next_check:
            return False
        self._next_check = now + _CHECK_SECONDS
        before, self._found = self._found, self._look()
        self.has_changed_again = self._found != before
        return self._found != self._used

    def mark_used(self, component: str) -> None:
        """Mark the files of the last check as used, and log it.

        :param component: the component's name, for the message.
        """
        self._used = self._found
        recoveries.info("%s uses the new %s", component, ", ".join(map(str, self.paths)))

    def _look(self) -> _Seen:
        return tuple(map(_signature, self.paths))


def report_expiry(context: Context, component: str, certificate: Path | None, key: Path | None) -> None:
    """Report the certificate's time of expiry in the monitoring, and log if it has expired.

    :param component: the component's name, for messages.
    """
    end = end_of(certificate, key)
    if end is not None:
        context.counters.set(**{_EXPIRES: end})
    for error in validity_errors(certificate, key):
        _log.warning("%s: %s", component, error)


class RenewedTls(Generic[Made]):
    """TLS context, or another object, made of files that may be replaced.

    :param make: makes the context; may raise :class:`ConfigError`.
    :param own: the own certificate and key.
    :param authorities: the file of trusted authorities.
    :param component: the component's name, for messages.
    :param context: the component's context; its counters get the time of expiry.
    :raises ConfigError: the files cannot be used.
    """

    def __init__(
        self,
        make: Callable[[], Made],
        own: tuple[Path | None, Path | None],
        authorities: Path | None,
        component: str,
        context: Context,
    ) -> None:
        self._make, self._own, self._component, self._of = make, own, component, context
        self._lock = Lock()  # guards the fields below; held while the files are read
        self._files = WatchedFiles((*own, authorities), context.clock)
        self._context = make()
        report_expiry(context, component, *own)

    def context(self) -> Made:
        """Return the context of the current files, or of the last usable ones; None without TLS."""
        with self._lock:
            if self._files.changed():
                self._renew()
            return self._context

    def _renew(self) -> None:
        try:
            self._context = self._make()
        except ConfigError as error:
            if self._files.has_changed_again:
                _log.error("%s keeps its current certificate: %s", self._component, error)
            return
        self._files.mark_used(self._component)
        report_expiry(self._of, self._component, *self._own)


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
