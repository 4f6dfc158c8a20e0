"""The proxy of requests: the configured one, else the one of the environment unless ``NO_PROXY`` exempts the host.

Every program reads ``NO_PROXY`` differently. Here an entry exempts what any usual reading (curl, requests, Go) exempts:
it is safer to bypass a proxy than to use one that does not know the host.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ...model.config import HttpConfig
from ...model.errors import ConfigError
from ...text.extras import is_installed

_PORTS = {"http": 80, "https": 443}
_SCHEMES = tuple(_PORTS)
_ALSO_SOCKS = (*_SCHEMES, "socks4", "socks4a", "socks5", "socks5h")
_RULE = "must be a URL such as http://proxy:3128"


def proxies_for(config: HttpConfig, base_url: str) -> Mapping[str, str]:
    """Return the proxies of requests to ``base_url``, by scheme.

    :raises ConfigError: a configured proxy, or the environment's proxy for ``base_url``, is not the URL of a proxy.
    """
    if config.proxies is not None:
        for url in config.proxies.values():
            _check("http.proxies", url)
        return config.proxies
    target, proxies = urlsplit(base_url), getproxies()
    if _is_excepted(target, proxies.get("no", "")) or proxy_bypass(target.hostname or ""):
        return {}
    used = proxy_of(base_url, proxies)
    if used:
        _check("the proxy of the environment", used)
    return proxies


def proxy_of(base_url: str, proxies: Mapping[str, str]) -> str:
    """Return the URL of the proxy for requests to ``base_url``, from :func:`proxies_for`; empty without one."""
    parts = urlsplit(base_url)
    names = (f"{parts.scheme}://{parts.hostname}", parts.scheme, f"all://{parts.hostname}", "all")
    used = next((proxies[name] for name in names if name in proxies), "")
    return used if not used or "://" in used else f"http://{used}"


def through(base_url: str, proxies: Mapping[str, str]) -> str:
    """Return the part of an error about a request to ``base_url`` that names its proxy; empty without one.

    :param proxies: the result of :func:`proxies_for`.
    """
    used = proxy_of(base_url, proxies)
    return f" (through the proxy {place_of(used)})" if used else ""


def place_of(url: str) -> str:
    """Return scheme, host and port of a URL, without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def check_proxy(option: str, url: str, schemes: tuple[str, ...] = _SCHEMES) -> None:
    """Check the URL of a proxy.

    :param schemes: the permitted schemes.
    :raises ConfigError: not the URL of a proxy; it is not shown, since it may hold a password.
    """
    if not _is_url(url, schemes):
        raise ConfigError(option, f"{_RULE} (in a password, write / ? # and @ as %2F %3F %23 and %40)", "***")
    if url.startswith("http") and not _is_encodable(url):
        raise ConfigError(option, "must have a user and a password of latin-1, as they are sent to proxies", "***")
    if url.startswith("socks") and not is_installed("socks"):
        raise ConfigError(option, f"{_RULE}; one of {urlsplit(url).scheme} needs the package PySocks", "***")


def _check(option: str, url: str) -> None:
    # without a scheme it means http
    check_proxy(option, url if "://" in url else f"http://{url}", _ALSO_SOCKS)


def _is_url(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and parts.hostname and parts.port != 0
    except ValueError:
        return False
    # urlsplit accepts invalid hosts, such as one with the end of line of its file. It also ends the host at a character
    # that a password must quote: host and port would then be the beginning of the password.
    strange = re.search(r"[\s\x00-\x1f]", url.rpartition("@")[2]) or "@" in parts.path + parts.query + parts.fragment
    return bool(good and not strange)


def _is_encodable(url: str) -> bool:
    """True if user and password can be sent by Basic authentication."""
    try:
        unquote(urlsplit(url).netloc.rpartition("@")[0]).encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True


def _is_excepted(target: SplitResult, exceptions: str) -> bool:
    host, port = (target.hostname or "").rstrip("."), target.port or _PORTS.get(target.scheme, 0)
    return any(_excepts(entry.lower(), host, port) for entry in re.split(r"[,\s]+", exceptions) if entry)


def _excepts(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    name, wanted_port = _divided(entry)
    if wanted_port not in ("", str(port)):
        return False
    own = _address(host)
    if own is None:
        name = name.removeprefix("*").strip(".")
        return bool(name) and (host == name or host.endswith(f".{name}"))
    try:
        return own in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False


def _divided(entry: str) -> tuple[str, str]:
    """Return name or network, and port or nothing, of ``name:port``, ``[address]:port``, ``[address]/bits``."""
    match = re.fullmatch(r"\[([^]]*)\](/\d+)?(?::(\d+))?|([^:]*):(\d+)", entry)
    if match is None:
        return entry, ""
    return (match[4], match[5]) if match[1] is None else (match[1] + (match[2] or ""), match[3] or "")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
