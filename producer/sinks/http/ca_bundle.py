"""Whose certificates are trusted: the authorities of the options, else those of the environment, else certifi's."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from ...model.config import HttpConfig
from ...model.errors import ConfigError

# As requests and curl know them; the first that is set.
_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def authorities_of(config: HttpConfig) -> str | bool:
    """A file or folder; True for certifi's, False to trust everybody."""
    if not config.verify:
        return False
    return config.ca_bundle or os.environ.get(_variable() or "") or True


def check_authorities(config: HttpConfig, base_url: str | None = None) -> None:
    """Tell who makes a producer that its authorities are none, not the first who sends.

    :param base_url: where requests go: the environment, which many programs share, counts only for https.
    :raises ConfigError: they cannot be read, or hold no certificate.
    """
    if isinstance(authorities_of(config), bool) or (config.ca_bundle is None and not _is_secure(base_url)):
        return
    trust_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), config)


def trust_authorities(context: ssl.SSLContext, config: HttpConfig) -> None:
    """Have a context trust them.

    :raises ConfigError: they cannot be read, or hold no certificate.
    """
    bundle = file_of_authorities(config)
    if bundle is None:
        return
    place = {"capath" if bundle.is_dir() else "cafile": str(bundle)}
    try:
        context.load_verify_locations(**place)
    except OSError as error:  # those of ssl, too
        whose = f"{_variable()} of the environment" if config.ca_bundle is None else "http.ca_bundle"
        rule = f"must be a PEM file of certificate authorities, or a folder of them ({_why(error)})"
        raise ConfigError(whose, rule, str(bundle)) from error


def file_of_authorities(config: HttpConfig) -> Path | None:
    """The file, or folder, that is trusted; None to trust everybody."""
    bundle = authorities_of(config)
    if isinstance(bundle, bool):
        return Path(DEFAULT_CA_BUNDLE_PATH) if bundle else None
    return Path(bundle)


def _is_secure(base_url: str | None) -> bool:
    return (base_url or "").lower().startswith("https:")


def _variable() -> str | None:
    return next((name for name in _VARIABLES if os.environ.get(name)), None)


def _why(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
