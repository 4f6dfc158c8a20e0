"""The listening socket, and the check that only this machine reaches it."""

from __future__ import annotations

import ipaddress
import socket

from ..errors import ServerStartError


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    :raises ServerStartError: the address or the port cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is named.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except (OSError, UnicodeError, OverflowError) as error:  # UnicodeError, OverflowError: an invalid name or port
        listener.close()
        raise ServerStartError(
            f"cannot listen on {host} port {port}: {error}; choose another address or port"
        ) from error
    return listener


def check_exposure(host: str) -> None:
    """Refuse to offer the default access key to other machines.

    :raises ServerStartError: other machines can reach ``host``.
    """
    if not all(ipaddress.ip_address(address).is_loopback for address in _addresses(host)):
        raise ServerStartError(
            f"listening on {host or 'all addresses'} lets other machines in, and the default access key is public: give"
            " access keys of your own (--access-key-id and --access-key-secret, or LogHubServer(access_keys=...)), or"
            " listen on 127.0.0.1"
        )


def _addresses(host: str) -> set[str]:
    """Return the addresses of ``host``.

    :raises ServerStartError: the name has no address.
    """
    if not host:
        return {"0.0.0.0"}  # noqa: S104 - what an empty name means
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ServerStartError(f"cannot listen on {host}: {error}; choose another address") from error
    return {str(address[0]).partition("%")[0] for *_, address in found}
