"""Hosts: addresses apart from names, and this machine apart from others."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def is_address(host: str) -> bool:
    """Whether a host is given by its address, of either version.

    :param host: without brackets, and without a port.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine by its loopback address, or by ``localhost`` and names below it.

    :param host: without brackets, and without a port.
    """
    if is_address(host):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def foreign_page(headers: Mapping[str, str], *, is_project_first: bool = False) -> str:
    """Return the site whose page sent a request to a server of this machine; empty if no other site's page did.

    A page of another site can make a name of its own lead to this machine. Its requests then have that name as Host,
    and no browser calls them requests to another site.

    :param headers: names in lower case.
    :param is_project_first: True if a label may be before the host: ``my-project.127.0.0.1``.
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
