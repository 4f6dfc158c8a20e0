"""Check whether the peers of a configuration answer from this machine.

A LogHub is asked as by ``producer check``: one signed request, which changes nothing. A source with a static method
``ask`` asks by itself. For other peers only a connection is opened. It shows neither whether they accept events, nor
whether the credentials are valid.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ...client.check import in_time
from ...client.producer import Producer
from ...model.config import HttpConfig, ProducerConfig
from ...model.errors import ProducerError, TargetError
from ..protocols.loghub import LogstoreOptions
from ..protocols.proxies import proxies_of
from .blueprint import Blueprint
from .missing_resources import components

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Peer:
    """A remote peer of a component.

    :ivar where: the component, as in messages.
    :ivar ask: asks the peer within the given seconds, and returns a sentence or raises :class:`ProducerError`.
    """

    where: str
    ask: Callable[[float], str]


def peers(blueprint: Blueprint) -> Iterator[Peer]:
    """Yield all peers that can be asked."""
    for name, part in blueprint.sources.items():
        if ask := getattr(part.source.kind, "ask", None):
            asked = partial(in_time, partial(ask, part.source.options), name="agent-check")
            yield Peer(f"sources.{name} ({blueprint.config.sources[name].type})", asked)
    for where, component, options in components(blueprint):
        if isinstance(options, LogstoreOptions):
            yield Peer(f"{where} ({component.type})", partial(_ask_loghub, options))
        elif getattr(options, "proxy", None) is None:
            for host, port in _addresses(where, options):
                yield Peer(f"{where} ({component.type})", partial(_connect, host, port))


def _ask_loghub(options: LogstoreOptions, timeout: float) -> str:
    config = ProducerConfig(
        sign_version=options.sign_version,
        region=options.region,
        http=HttpConfig(proxies=proxies_of(options.proxy)),
        name="agent-check",
    )
    with Producer(options.account(), config=config) as producer:
        return producer.check(options.project, options.logstore, timeout=timeout)


def _connect(host: str, port: int, timeout: float) -> str:
    def connect() -> str:
        try:
            socket.create_connection((host, port), timeout).close()
        except OSError as error:
            raise TargetError("endpoint", f"{host}:{port} does not answer: {error.strerror or error}") from error
        return f"{host}:{port} accepts connections; whether it accepts events was not checked"

    return in_time(connect, timeout, "agent-check")


def _addresses(where: str, options: Any) -> Iterator[tuple[str, int]]:
    """Yield a peer's hosts and ports. For a source only brokers: its other hosts are its own listening addresses."""
    servers = getattr(options, "bootstrap_servers", None)
    if servers is not None:
        for server in servers.split(","):
            host, _, port = server.strip().rpartition(":")
            if port.isdigit():
                yield host.strip("[]"), int(port)
    if not where.startswith("sinks."):
        return
    url = urlsplit(str(getattr(options, "endpoint", None) or ""))
    if url.scheme in _PORTS and url.hostname:
        yield url.hostname, url.port or _PORTS[url.scheme]
    host, port = getattr(options, "host", None) or getattr(options, "hostname", None), getattr(options, "port", None)
    if isinstance(host, str) and isinstance(port, int):
        yield host, port


def answer(peer: Peer, timeout: float) -> tuple[str, bool]:
    """Ask a peer. Return its answer, and True if that is a failure."""
    try:
        return f"{peer.where}: {peer.ask(timeout)}", False
    except ProducerError as error:
        return f"{peer.where}: {error}", True
