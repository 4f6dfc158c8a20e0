"""Listening sources that run during a test."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from producer.agent import EventBatch, Stop
from producer.model.errors import ChannelFullError
from tests.agent.components import made
from tests.support.waiting import PATIENCE, Call, eventually, passed


class Outlet:
    """Outlet that keeps batches; it is full while :attr:`room` is not set."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.room = threading.Event()
        self.room.set()
        self.waiting = 0

    @property
    def bodies(self) -> list[bytes]:
        return [body for batch in list(self.batches) for body in batch.bodies()]

    @property
    def events(self) -> list[tuple[dict[str, str], bytes]]:
        return [event for batch in list(self.batches) for event in batch.events()]

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        if not self.room.is_set():
            raise ChannelFullError(
                "c",
                size=1,
                capacity=1,
                used_bytes=0,
                byte_capacity=None,
                wanted=1,
                wanted_bytes=0,
                last_take_age=None,
                waited=0,
            )
        self.batches.append(batch)

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        self.waiting += 1
        while not self.room.wait(0.01):
            if stop.is_set():
                return False
        self.batches.append(batch)
        return True


class Served:
    def __init__(self, source: Any, outlet: Outlet, stop: Stop) -> None:
        self.source, self.outlet, self.stop = source, outlet, stop

    @property
    def address(self) -> tuple[str, int]:
        address: tuple[str, int] = self.source.addresses[0]
        return address

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=PATIENCE)

    def got(self, *bodies: bytes) -> None:
        eventually(lambda: len(self.outlet.bodies) >= len(bodies), f"{len(bodies)} events")
        assert self.outlet.bodies == list(bodies)


@contextmanager
def serving(name: str, **options: Any) -> Iterator[Served]:
    """Run a source of a type until the end of the block."""
    stop, outlet = Stop(), Outlet()
    source = made("sources", name, **{"port": 0} | options)
    call = Call(lambda: source.run(outlet, stop))
    passed(source.listening, "the source listens")
    try:
        yield Served(getattr(source, "_source", source), outlet, stop)  # the transport of otlp and gelf
    finally:
        stop.set()
        call.result()


def all_of(peer: socket.socket) -> bytes:
    """Return the bytes that a peer sends until it closes; none if it resets the connection."""
    found = b""
    try:
        while data := peer.recv(1 << 16):
            found += data
    except ConnectionError:
        pass
    return found
