"""Where the server listens, and who can reach it there."""

from __future__ import annotations

import ipaddress
import socket

from ..errors import ServerStartError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    :raises ServerStartError: the address or the port cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's delay off only where the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except (OSError, UnicodeError, OverflowError) as error:  # the latter two: a name, or a port, that none can have
        listener.close()
        raise ServerStartError(
            f"cannot listen on {host} port {port}: {error}; choose another address or port"
        ) from error
    return listener


def check_exposure(host: str) -> None:
    """Refuse to offer the default access key to other machines.

    :raises ServerStartError: ``host`` is not, or not only, an address of this machine alone.
    """
    if not all(ipaddress.ip_address(address).is_loopback for address in _addresses(host)):
        raise ServerStartError(
            f"listening on {host or 'all addresses'} lets other machines in; the default access key is for this one:"
            " give access keys of your own (--access-key-id and --access-key-secret, or LogHubServer(access_keys=...)),"
            " or listen on 127.0.0.1"
        )


def _addresses(host: str) -> set[str]:
    """The addresses that ``host`` stands for; one that nobody knows will not be listened on either."""
    if not host:
        return {"0.0.0.0"}  # noqa: S104 - what an empty name means
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ServerStartError(f"cannot listen on {host}: {error}; choose another address") from error
    return {str(address[0]).partition("%")[0] for *_, address in found}
