"""Trusted certificate authorities: the configured ones, else those of the environment, else certifi's."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import certifi

from ...model.config import HttpConfig
from ...model.errors import ConfigError

# The variables of requests and curl; the first that is set counts.
_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def check_authorities(config: HttpConfig, base_url: str | None = None) -> None:
    """Check the authorities when a producer is made, not at the first send.

    :param base_url: the destination of requests: the environment, shared by many programs, counts only for https.
    :raises ConfigError: the authorities cannot be read, or hold no certificate.
    """
    is_secure = (base_url or "").lower().startswith("https:")
    if config.verify and (config.ca_bundle is not None or (is_secure and _variable())):
        client_context(config)


def client_context(config: HttpConfig) -> ssl.SSLContext:
    """Return a context for connections to servers.

    :raises ConfigError: the authorities cannot be read, or hold no certificate.
    """
    bundle = file_of_authorities(config)
    if bundle is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context = _verifying(bundle, "http.ca_bundle" if config.ca_bundle else f"{_variable()} of the environment")
    context.set_alpn_protocols(["http/1.1"])
    return context


def _verifying(bundle: Path, option: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(**{"capath" if bundle.is_dir() else "cafile": str(bundle)})  # type: ignore[arg-type]  # both are texts
    except OSError as error:  # errors of ssl, too
        why = getattr(error, "reason", None) or error.strerror or error
        rule = f"must be a PEM file of certificate authorities, or a folder of them ({why})"
        raise ConfigError(option, rule, str(bundle)) from error


def file_of_authorities(config: HttpConfig) -> Path | None:
    """Return the file, or folder, of trusted authorities; None to trust every server."""
    if not config.verify:
        return None
    return Path(config.ca_bundle or os.environ.get(_variable() or "") or certifi.where())


def _variable() -> str | None:
    return next((name for name in _VARIABLES if os.environ.get(name)), None)


class Trust:
    """The TLS context of a transport's connections, made anew when the authorities change.

    While the authorities cannot be read, as during a renewal, the last valid context stays in use.
    """

    def __init__(self, config: HttpConfig) -> None:
        self._config, self._file = config, file_of_authorities(config)
        self._known: tuple[object, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context.

        :raises ConfigError: the authorities cannot be read, and never could.
        """
        seen, known = self._look(), self._known
        if known is not None and known[0] == seen:
            return known[1]
        try:
            context = client_context(self._config)
        except ConfigError:
            if known is None:
                raise
            return known[1]
        self._known = seen, context
        return context

    def _look(self) -> object:
        try:
            status = None if self._file is None else self._file.stat()
        except OSError:
            return "missing"
        return status and (status.st_ino, status.st_mtime_ns, status.st_size)
