"""The option ``proxy`` of those who make requests."""

from __future__ import annotations

from ...sinks.http.proxies import check_proxy

#: What the option is.
PROXY = "URL of a proxy, http://user:password@host:port; none for no proxy; empty for the environment's (HTTPS_PROXY)"


def proxies_of(proxy: str | None) -> dict[str, str] | None:
    """By scheme, as :class:`~producer.config.HttpConfig` has them; None for those of the environment.

    :raises ConfigError: it is no URL of a proxy.
    """
    if not proxy or proxy == "none":
        return {} if proxy else None
    check_proxy("proxy", proxy)
    return {"http": proxy, "https": proxy}
