"""The option ``proxy`` of those who make requests."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ...errors import ConfigError

#: What the option is.
PROXY = "URL of a proxy, http://user:password@host:port; none for no proxy; empty for the environment's (HTTPS_PROXY)"


def proxies_of(proxy: str | None) -> dict[str, str] | None:
    """By scheme, as :class:`~producer.config.HttpConfig` has them; None for those of the environment.

    :raises ConfigError: it is no URL of a proxy.
    """
    if not proxy or proxy == "none":
        return {} if proxy else None
    try:
        parts = urlsplit(proxy)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        # urlsplit takes what is no host, such as one with a line's end of the file it came from.
        good = good and not re.search(r"[\s\x00-\x1f]", proxy.rpartition("@")[2])
    except ValueError:
        good = False
    if not good:
        raise ConfigError("proxy", "must be a URL such as http://proxy:3128", "***")  # it may hold a password
    return {"http": proxy, "https": proxy}
