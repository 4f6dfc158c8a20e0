"""The option ``proxy`` of components that send requests."""

from __future__ import annotations

from ...sinks.http.proxies import check_proxy

#: Documentation of the option.
PROXY = "proxy URL, http://user:password@host:port; none to use no proxy; empty for the environment's (HTTPS_PROXY)"


def proxies_of(proxy: str | None) -> dict[str, str] | None:
    """Return proxies by scheme, as :class:`~producer.HttpConfig` expects them; None for the environment's.

    :raises ConfigError: the text is not the URL of a proxy.
    """
    if not proxy or proxy == "none":
        return {} if proxy else None
    check_proxy("proxy", proxy)
    return {"http": proxy, "https": proxy}
