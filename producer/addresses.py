"""Whether text is the address of a host, or a name that somebody has to be asked for."""

from __future__ import annotations

import ipaddress


def is_address(host: str) -> bool:
    """Whether a host is given by its address, of either version.

    :param host: without brackets, and without a port.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
