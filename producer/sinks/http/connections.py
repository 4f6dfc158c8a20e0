"""Connections of ``requests`` that tell the watchdog of their sockets: direct ones, TLS, and those to proxies.

A socket is known from the moment that it exists, before a proxy is spoken to and before TLS begins; one from the pool,
from the beginning of the request.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import requests.adapters
from urllib3 import HTTPConnectionPool, PoolManager

from .watchdog import guard


class WatchedAdapter(requests.adapters.HTTPAdapter):
    """An adapter all of whose connections are under watch."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """See :class:`requests.adapters.HTTPAdapter`."""
        super().init_poolmanager(*args, **options)
        _put_under_watch(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """See :class:`requests.adapters.HTTPAdapter`."""
        # Each time: another thread may have made it a moment ago.
        return _put_under_watch(super().proxy_manager_for(proxy, **options))


def _put_under_watch(manager: PoolManager) -> PoolManager:
    classes = manager.pool_classes_by_scheme
    manager.pool_classes_by_scheme = {scheme: _watched(pool) for scheme, pool in classes.items()}
    return manager


class _Watched:
    """The part of a connection that tells of its socket; comes before one of urllib3's classes."""

    sock: Any

    def _new_conn(self) -> Any:
        sock = super()._new_conn()  # type: ignore[misc]
        try:
            guard(sock.fileno())
        except BaseException:
            sock.close()
            raise
        return sock

    def request(self, *args: Any, **options: Any) -> None:
        """See :class:`urllib3.connection.HTTPConnection`."""
        if self.sock is not None:
            guard(self.sock.fileno())
        super().request(*args, **options)  # type: ignore[misc]


@cache
def _watched(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """The same kind of pool, with connections that are under watch."""
    if issubclass(pool.ConnectionCls, _Watched):
        return pool
    connection = type(f"Watched{pool.ConnectionCls.__name__}", (_Watched, pool.ConnectionCls), {})
    return type(f"Watched{pool.__name__}", (pool,), {"ConnectionCls": connection})
