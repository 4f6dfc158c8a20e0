"""The files of TLS: what is wrong with them is told by file, and new ones are taken up without a restart.

A certificate is renewed every few months, or weeks, by something that knows nothing of the agent: a configuration that
names its path does not change. So the files are looked at before a connection uses them, and a pair that does not fit,
as between the writing of the one and of the other, leaves the one before in use.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from ..clock import Clock
from ..errors import ConfigError
from ..loggers import get_logger
from .options import missing_file

_log = get_logger("producer.agent")

#: Seconds between two looks.
_LOOK = 1.0
#: X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
_OUT_OF_TIME = (9, 10)
_Seen = tuple[tuple[int, int, int] | None, ...]


def load_own(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Have a context say who we are.

    :param key: None if it is in the same file.
    :raises ConfigError: the files cannot be used: which of the two, and why.
    """
    where = "certificate" if key is None else "key"

    def ask() -> NoReturn:  # OpenSSL itself would ask on the terminal, and wait
        rule = "is encrypted, and nobody is here to be asked for its passphrase: give one that is not"
        raise ConfigError(where, rule, str(key or certificate))

    for error in (*missing_file("certificate", certificate), *missing_file("key", key)):
        raise error
    try:
        context.load_cert_chain(certificate, key, password=ask)
    except ssl.SSLError as failure:
        if failure.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(where, "is not that of the certificate", str(key or certificate)) from failure
        raise ConfigError("certificate", f"cannot be used: {failure}", str(certificate)) from failure


def load_authorities(context: ssl.SSLContext, name: str, path: Path) -> None:
    """Have a context trust the certificates of a file.

    :param name: of the option.
    :raises ConfigError: it cannot be used.
    """
    for error in missing_file(name, path):
        raise error
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as failure:
        raise ConfigError(name, f"cannot be used: {failure}", str(path)) from failure


def out_of_time(certificate: Path | None, key: Path | None) -> Iterator[ConfigError]:
    """What is wrong with the time of a certificate that can be used otherwise: who checks it refuses it.

    It is held against itself, in a handshake that leaves this function nowhere: so what it means is OpenSSL's to say.
    """
    if certificate is None:
        return
    ours, theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        load_own(ours, certificate, key)
        theirs.check_hostname = False
        theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        load_authorities(theirs, "certificate", certificate)
        _shake_hands(ours, theirs)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OUT_OF_TIME:
            yield ConfigError("certificate", f"is of no use: {error.verify_message}", str(certificate))
    except (ConfigError, ssl.SSLError):
        return  # that is told where it is used


def _shake_hands(ours: ssl.SSLContext, theirs: ssl.SSLContext) -> None:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = theirs.wrap_bio(back, there), ours.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


class RenewedTls:
    """A context of files that may be replaced.

    :param make: makes it; may raise :class:`ConfigError`.
    :param own: the certificate and the key that say who we are.
    :param authorities: the file of those that are trusted.
    :param who: for messages.
    :raises ConfigError: they cannot be used.
    """

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext | None],
        own: tuple[Path | None, Path | None],
        authorities: Path | None,
        who: str,
        clock: Clock,
    ) -> None:
        self._make, self._own, self._who, self._clock = make, own, who, clock
        self._paths = [path for path in (*own, authorities) if path is not None]
        self._lock = threading.Lock()  # guards what follows; held while the files are read, by who needs them
        self._seen = self._tried = self._look()
        self._context = make()
        self._tell_time()
        self._next_look = clock.monotonic() + _LOOK

    def context(self) -> ssl.SSLContext | None:
        """Of the files as they are, or as they were when they could be used last; None without TLS."""
        with self._lock:
            now = self._clock.monotonic()
            if self._paths and now >= self._next_look:
                self._next_look = now + _LOOK
                self._renew()
            return self._context

    def _renew(self) -> None:
        found = self._look()
        if found == self._seen:
            return
        news, self._tried = found != self._tried, found
        try:
            self._context = self._make()
        except ConfigError as error:
            if news:
                _log.error("%s goes on with the certificate that it has: %s", self._who, error)
            return
        self._seen = found
        _log.warning("%s uses the new %s", self._who, ", ".join(map(str, self._paths)))
        self._tell_time()

    def _tell_time(self) -> None:
        for error in out_of_time(*self._own):
            _log.warning("%s: %s", self._who, error)

    def _look(self) -> _Seen:
        return tuple(map(_signature, self._paths))


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
