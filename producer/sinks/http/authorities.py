"""Whose certificates are trusted: the authorities of the options, else those of the environment, else certifi's."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from ...config import HttpConfig
from ...errors import ConfigError

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
    bundle = authorities_of(config)
    of_environment = config.ca_bundle is None
    if isinstance(bundle, bool) or (of_environment and not (base_url or "").lower().startswith("https:")):
        return
    place = {"capath" if Path(bundle).is_dir() else "cafile": bundle}
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(**place)
    except OSError as error:  # those of ssl, too
        whose = f"{_variable()} of the environment" if of_environment else "http.ca_bundle"
        rule = f"must be a PEM file of certificate authorities, or a folder of them ({_why(error)})"
        raise ConfigError(whose, rule, bundle) from error


def _variable() -> str | None:
    return next((name for name in _VARIABLES if os.environ.get(name)), None)


def _why(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
