"""MonitoringServer: a small HTTP server for one agent.

::

    /                 a page that draws the agent with its rates
    /metrics          Prometheus; Flume's JSON for who accepts application/json
    /metrics.json     Flume's JSON
    /status.json      all figures, for programs
    /health/live      200 as long as the process answers
    /health/ready     200 if all components do what they should; else 503, and why not. A file that cannot be taken up
                      is a note: all agents that have it would be taken out of service at once

It only reads. While it listens on this machine alone, it answers no page of another site. So many bytes of a request,
so many seconds for it, for its answer, and for that to be taken; so many connections at once, of which the oldest makes
room: no peer holds up another one, and none the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...model.errors import ProducerError
from ...runtime.loggers import get_logger
from ...text.addresses import foreign_page, is_loopback
from ...text.extras import how_to_install
from ...text.printable import one_line
from ..run.agent import Agent
from .figures import figures, not_ready, notes
from .formats import flume_json, prometheus
from .page import page

if TYPE_CHECKING:
    from ...wire.http_framing import ServerConnection

_log = get_logger("loghub.agent.monitoring")

DEFAULT_PORT = 9180
_LOOPBACK = "127.0.0.1"
#: Connections at once.
_MOST_CONNECTIONS = 32
#: Bytes of a request with its headers.
_MOST_BYTES = 16 << 10
#: Seconds for a request, for an answer, and for the rest of it to be taken.
_PATIENCE = 5.0
_READ = 1 << 14
#: Characters of what is wrong with a request that a peer is told.
_MOST_TOLD = 200


class MonitoringError(ProducerError):
    """It cannot listen there."""


def address_of(text: str) -> tuple[str, int]:
    """The host and the port of ``host:port``, ``[host]:port``, ``:port`` or ``port``: of this machine, if none is said.

    :raises ValueError: it is none of these.
    """
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"must be host:port or a port, such as 127.0.0.1:{DEFAULT_PORT}, got {text!r}")
    return host.removeprefix("[").removesuffix("]") or _LOOPBACK, int(port)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    kind: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Request:
    """What a peer asks for.

    :ivar site: the site of another machine whose page asks, or the Host of such a site; empty otherwise.
    :ivar fault: why it is no request; empty if it is one.
    :ivar status: the answer's status then.
    """

    method: str = ""
    target: str = ""
    accept: str = ""
    site: str = ""
    fault: str = ""
    status: int = 400


async def _request(http: ServerConnection, reader: asyncio.StreamReader) -> _Request | None:
    """The request of a connection; None if the peer went away before it said anything."""
    import h11

    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ))
    except h11.RemoteProtocolError as error:
        return _Request(fault=str(error)[:_MOST_TOLD], status=error.error_status_hint)
    if not isinstance(event, h11.Request):
        return None
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
    accept = ", ".join(value.decode("latin-1") for name, value in event.headers if name == b"accept")
    return _Request(event.method.decode("ascii"), event.target.decode("ascii"), accept, foreign_page(headers))


class MonitoringServer:
    """See the module; serves until :meth:`close`, on a thread of its own.

    :param host: where to listen.
    :param port: 0 for a free one.
    :raises MonitoringError: it cannot listen there.
    """

    def __init__(self, agent: Agent, host: str = _LOOPBACK, port: int = DEFAULT_PORT) -> None:
        if importlib.util.find_spec("h11") is None:
            raise MonitoringError(f"monitoring needs h11: {how_to_install('agent')}")
        self._agent = agent
        self._loop = asyncio.new_event_loop()
        self._serving: dict[asyncio.Task[None], None] = {}
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, name="producer-agent-monitoring", daemon=True)
        self._thread.start()
        try:
            # There, because this thread may run a loop of its own.
            self.port = asyncio.run_coroutine_threadsafe(self._listen(host, port), self._loop).result()
        except OSError as error:
            self.close()
            # What asyncio says of it names the address again.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or error
            raise MonitoringError(f"monitoring cannot listen on {host}:{port}: {why}") from error
        self.host = host

    @property
    def _is_of_this_machine(self) -> bool:
        """True if no other machine can reach it."""
        return self._server is not None and all(is_loopback(each.getsockname()[0]) for each in self._server.sockets)

    @property
    def url(self) -> str:
        """Of the page."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    def close(self) -> None:
        """Listen no more. Calling it again does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._end())
        finally:
            self._loop.close()

    async def _listen(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._entered():
            try:
                await self._answer(reader, writer)
                writer.close()
                await asyncio.wait_for(writer.wait_closed(), _PATIENCE)
            except (OSError, TimeoutError) as error:
                _log.debug("a connection ended: %r", error)
            except asyncio.CancelledError:
                _log.debug("a connection was ended")
            finally:
                if writer.transport.get_write_buffer_size():
                    writer.transport.abort()  # closed, it would wait for ever for a peer that does not read
                writer.close()

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """This connection is one of those that are served; the oldest goes where they are too many."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio's streams serve each connection by one
        if len(self._serving) >= _MOST_CONNECTIONS:
            oldest = next(iter(self._serving))
            del self._serving[oldest]
            oldest.cancel()
        self._serving[task] = None
        try:
            yield
        finally:
            self._serving.pop(task, None)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from ...wire.http_framing import ServerConnection, answer  # h11 is an extra

        http = ServerConnection(_MOST_BYTES)
        request = await asyncio.wait_for(_request(http, reader), _PATIENCE)
        if request is None:
            return
        method, found = request.method, self._answer_to(request)
        headers = {
            "Content-Type": f"{found.kind}; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **found.headers,
        }
        writer.write(answer(http, found.status, headers.items(), found.body.encode(), head=method == "HEAD"))
        await asyncio.wait_for(writer.drain(), _PATIENCE)

    def _answer_to(self, request: _Request) -> _Answer:
        if request.fault:
            return _Answer(request.status, "text/plain", f"This is no request of HTTP/1: {request.fault}.\n")
        if request.method not in ("GET", "HEAD"):
            return _Answer(405, "text/plain", "Only GET and HEAD.\n", {"Allow": "GET, HEAD"})
        if request.site and self._is_of_this_machine:
            site = one_line(request.site[:_MOST_TOLD])
            return _Answer(
                403, "text/plain", f"This is for this machine only, 127.0.0.1 or localhost, not for {site}.\n"
            )
        path = request.target.partition("?")[0]
        if path == "/metrics" and "application/json" in request.accept:
            path = "/metrics.json"
        make = self._pages().get(path)
        return _Answer(404, "text/plain", f"There are {', '.join(self._pages())}.\n") if make is None else make()

    def _pages(self) -> Mapping[str, Callable[[], _Answer]]:
        return {
            "/": self._page,
            "/metrics": lambda: _Answer(200, "text/plain; version=0.0.4", prometheus(figures(self._agent))),
            "/metrics.json": lambda: _json(flume_json(figures(self._agent))),
            "/status.json": lambda: _json(figures(self._agent)),
            "/health/live": lambda: _json({"live": True}),
            "/health/ready": self._ready,
        }

    def _ready(self) -> _Answer:
        reasons, noted = not_ready(self._agent), notes(self._agent)
        told = {"ready": not reasons, "reasons": reasons} | ({"notes": noted} if noted else {})
        return _json(told, 503 if reasons else 200)

    def _page(self) -> _Answer:
        nonce = secrets.token_urlsafe(16)
        policy = f"default-src 'none'; connect-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'"
        html = page(figures(self._agent), nonce)
        return _Answer(200, "text/html", html, {"Content-Security-Policy": policy})


def _json(value: object, status: int = 200) -> _Answer:
    return _Answer(status, "application/json", json.dumps(value) + "\n")
