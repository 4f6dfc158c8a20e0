"""Hosts: addresses and names, and whether they are of this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def is_address(host: str) -> bool:
    """Return True if a host is an address of IP version 4 or 6.

    :param host: the host, without brackets and port.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return a host as a URL has it: an address of IP version 6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Return True if a host is a loopback address, ``localhost``, or a name below it.

    :param host: the host, without brackets and port.
    """
    if is_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def foreign_page(headers: Mapping[str, str], *, is_project_first: bool = False) -> str:
    """Return the site whose page sent a request to a server of this machine; empty if no other site's page did.

    A page of another site can resolve a name of its own to this machine (DNS rebinding). Its requests then have that
    name as Host, and browsers treat them as requests to the same site.

    :param headers: the headers, names in lower case.
    :param is_project_first: True if a label may precede the host, as in ``my-project.127.0.0.1``.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host
    is_here = is_loopback(name) or (is_project_first and is_loopback(name.partition(".")[2]))
    if host and not is_here:
        return host
    return "" if origin is None or origin.partition("://")[2] == host else origin
