"""A small HTTP server with the figures of one agent.

::

    /                 a page with the agent's topology, figures, refused events, and the last lines of its log
    /log              the last lines of the log; as for the page, with ?text=TEXT&level=warning only those that have the
                      text, and at least the level info, warning or error
    /metrics          Prometheus or OpenMetrics; Flume's JSON for clients that accept application/json
    /metrics.json     Flume's JSON
    /status.json      all figures, and the last lines of the log, for programs; with a sample of refused events under
                      the conditions of /tap
    /health/live      200 as long as the process answers
    /tap?name=NAME    a sample of the events that pass a component, as they pass, if the option ``tap`` is on and the
                      server listens on loopback only
    /health/ready     200 if all components work; else 503, with the reasons. An invalid configuration file is only
                      a note, or all agents that share it would be taken out of service at once

The server changes nothing. While it listens on loopback only, it refuses requests from pages of other sites. The bytes
of a request, the seconds for a request and for its answer, and the connections are limited. A new connection replaces
the oldest one if there are too many. So no client blocks another one, or the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...model.errors import ProducerError
from ...runtime.loggers import get_logger
from ...text.addresses import bracketed, foreign_page, is_loopback
from ...text.extras import how_to_install, is_installed
from ...text.plural import counted
from ...text.printable import one_line
from ..run.agent import Agent
from .figures import figures, not_ready, notes
from .formats import flume_json, prometheus
from .page import moment, page
from .queries import QueryError
from .recent_log import RecentLog, search_of
from .tapping import tapped

if TYPE_CHECKING:
    import h11

    from ...wire.http_framing import ServerConnection

_log = get_logger("loghub.agent.monitoring")

DEFAULT_PORT = 9180
_LOOPBACK = "127.0.0.1"
#: Maximum number of connections at once.
_MOST_CONNECTIONS = 32
#: Maximum number of connections that show events.
_MOST_TAPS = 4
#: Maximum bytes of a request with its headers.
_MOST_BYTES = 16 << 10
#: Seconds for a request, for an answer, and for the client to read the rest of it.
_PATIENCE = 5.0
_READ = 1 << 14
#: Seconds between the figures of a rate.
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 60.0
_POLICY = (
    "default-src 'none'; connect-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
#: Maximum number of characters of a fault or a site in an answer.
_MOST_SHOWN = 200


class MonitoringError(ProducerError):
    """Raised when the server cannot listen."""


def address_of(text: str) -> tuple[str, int]:
    """Parse ``host:port``, ``[host]:port``, ``:port`` or ``port``. Without a host, it is loopback.

    :raises ValueError: if the text has none of these forms.
    """
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"must be host:port or a port, such as 127.0.0.1:{DEFAULT_PORT}, got {text!r}")
    return host.removeprefix("[").removesuffix("]") or _LOOPBACK, int(port)


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer to a request.

    :ivar stream: yields the body in pieces, in place of ``body``; None for a whole body.
    """

    status: int
    kind: str
    body: str | bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    """A client's request.

    :ivar site: the foreign site whose page sent the request, or that its Host header names; empty otherwise.
    :ivar fault: why the request is invalid; empty if it is valid.
    :ivar status: the status to answer a fault with.
    """

    method: str = ""
    target: str = ""
    accept: str = ""
    accept_encoding: str = ""
    site: str = ""
    fault: str = ""
    status: int = 400


async def _request(http: ServerConnection, reader: asyncio.StreamReader) -> _Request | None:
    """Read the request of a connection; None if the client left before it sent anything."""
    import h11

    try:
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await reader.read(_READ))
    except h11.RemoteProtocolError as error:
        return _Request(fault=str(error)[:_MOST_SHOWN], status=error.error_status_hint)
    if not isinstance(event, h11.Request):
        return None
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
    accept, encoding = _joined(event, b"accept"), _joined(event, b"accept-encoding")
    method, target = event.method.decode("ascii"), event.target.decode("ascii")
    return _Request(method, target, accept, encoding, foreign_page(headers))


def _joined(request: h11.Request, name: bytes) -> str:
    return ", ".join(value.decode("latin-1") for key, value in request.headers if key == name)


class MonitoringServer:
    """An HTTP server for one agent, on a thread of its own, until :meth:`close`.

    :param host: the address to listen on.
    :param port: the port; 0 for a free one.
    :raises MonitoringError: if it cannot listen there, or a package of the extra is not installed.
    """

    def __init__(self, agent: Agent, host: str = _LOOPBACK, port: int = DEFAULT_PORT) -> None:
        for package in ("h11", "prometheus_client"):
            if not is_installed(package):
                raise MonitoringError(f"monitoring needs {package}: {how_to_install('agent')}")
        self._agent, self._log = agent, RecentLog(lambda: agent.hidden)
        self._before: Mapping[str, Any] = figures(agent)
        self._last: Mapping[str, Any] = self._before
        self._loop = asyncio.new_event_loop()
        self._serving: dict[asyncio.Task[None], None] = {}
        self._server: asyncio.Server | None = None
        self._taps = 0  # streams that are open
        self._thread = threading.Thread(target=self._run, name="producer-agent-monitoring", daemon=True)
        self._thread.start()
        try:
            # On the server's thread, since this one may run a loop of its own.
            self.port = asyncio.run_coroutine_threadsafe(self._listen(host, port), self._loop).result()
        except OSError as error:
            self.close()
            # asyncio's text repeats the address.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or error
            raise MonitoringError(f"monitoring cannot listen on {host}:{port}: {why}") from error
        self.host = host

    @property
    def _is_of_this_machine(self) -> bool:
        """True if the server listens on loopback only."""
        return self._server is not None and all(is_loopback(each.getsockname()[0]) for each in self._server.sockets)

    @property
    def url(self) -> str:
        """The URL of the page."""
        return f"http://{bracketed(self.host)}:{self.port}/"

    def close(self) -> None:
        """Stop the server. A second call does nothing."""
        self._log.close()
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
                    writer.transport.abort()  # a plain close would wait for ever for a client that does not read
                writer.close()

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Register a connection. If there are too many, the oldest one is cancelled."""
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
        from ...wire.http_framing import ServerConnection, answer, begin_answer  # h11 is an extra

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
        if found.stream is not None and method == "GET":
            writer.write(begin_answer(http, found.status, headers.items()))
            await self._stream(http, found.stream, writer)
            return
        body = found.body.encode() if isinstance(found.body, str) else found.body
        writer.write(answer(http, found.status, headers.items(), body, head=method == "HEAD"))
        await asyncio.wait_for(writer.drain(), _PATIENCE)

    async def _stream(
        self, http: ServerConnection, stream: AsyncGenerator[bytes, None], writer: asyncio.StreamWriter
    ) -> None:
        import h11

        self._taps += 1
        try:
            async with contextlib.aclosing(stream) as pieces:
                async for piece in pieces:
                    writer.write(http.send(h11.Data(data=piece)))
                    await asyncio.wait_for(writer.drain(), _PATIENCE)
            writer.write(http.send(h11.EndOfMessage()))
        finally:
            self._taps -= 1

    def _answer_to(self, request: _Request) -> _Answer:
        if request.fault:
            return _Answer(request.status, "text/plain", f"Invalid HTTP/1 request: {request.fault}.\n")
        if request.method not in ("GET", "HEAD"):
            return _Answer(405, "text/plain", "The method must be GET or HEAD.\n", {"Allow": "GET, HEAD"})
        if request.site and self._is_of_this_machine:
            site = one_line(request.site[:_MOST_SHOWN])
            return _Answer(403, "text/plain", f"Only 127.0.0.1 and localhost may be used here, not {site}.\n")
        path = request.target.partition("?")[0]
        if path == "/metrics" and "application/json" in request.accept:
            path = "/metrics.json"
        pages = self._pages(request)
        if path not in pages:
            return _Answer(404, "text/plain", f"No such page. The pages are {', '.join(pages)}.\n")
        try:
            return pages[path]()
        except QueryError as error:
            return _Answer(400, "text/plain", f"{error}.\n")

    def _pages(self, request: _Request) -> Mapping[str, Callable[[], _Answer]]:
        query = request.target.partition("?")[2]
        return {
            "/": lambda: self._page(query),
            "/log": lambda: self._lines(query),
            "/metrics": lambda: self._metrics(request),
            "/metrics.json": lambda: _json(flume_json(figures(self._agent))),
            "/status.json": lambda: _json(self._figures()),
            "/tap": lambda: self._tap(query),
            "/health/live": lambda: _json({"live": True}),
            "/health/ready": self._ready,
        }

    def _metrics(self, request: _Request) -> _Answer:
        from ...wire.openmetrics import answer_scrape  # prometheus-client is an extra

        body, headers = answer_scrape(prometheus(figures(self._agent)), request.accept, request.accept_encoding)
        return _Answer(200, "", body, headers)

    def _tap(self, query: str) -> _Answer:
        """Return a stream of events, which may be confidential: only to this machine, and only if it was asked for."""
        if refusal := self._refusal_of_events():
            return _Answer(403, "text/plain", f"{refusal}\n")
        if self._taps >= _MOST_TAPS:
            return _Answer(503, "text/plain", f"The limit of {counted(_MOST_TAPS, 'tap')} is reached.\n")
        return _Answer(200, "application/jsonl", "", stream=tapped(self._agent, query))

    def _refusal_of_events(self) -> str:
        """Return why events are not shown; empty if they may be."""
        if not self._is_of_this_machine:
            return "Events are shown only where the monitoring listens on loopback."
        return "" if self._agent.config.tap else "Events are not shown: set tap = true under [agent]."

    def _ready(self) -> _Answer:
        reasons, noted = not_ready(self._agent), notes(self._agent)
        status = {"ready": not reasons, "reasons": reasons} | ({"notes": noted} if noted else {})
        return _json(status, 503 if reasons else 200)

    def _figures(self) -> dict[str, Any]:
        return {**figures(self._agent, events=not self._refusal_of_events()), "log": self._log.lines()}

    def _lines(self, query: str) -> _Answer:
        lines = self._log.lines(*search_of(query))
        text = "".join(f"{moment(each['time'])} {each['level']} {each['text']}\n" for each in lines)
        return _Answer(200, "text/plain", text)

    def _page(self, query: str) -> _Answer:
        search = search_of(query)
        now = {**self._figures(), "log": self._log.lines(*search)}
        nonce = secrets.token_urlsafe(16)
        html = page(self._earlier(now), now, search, self._refusal_of_events(), nonce)
        return _Answer(200, "text/html", html, {"Content-Security-Policy": _POLICY.format(nonce=nonce)})

    def _earlier(self, now: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return figures to compare with those of this moment: at least a second older, or their own at first."""
        if now["time"] - self._last["time"] >= _LEAST_SECONDS:
            self._before, self._last = self._last, now
        old = now["time"] - self._before["time"]
        return self._before if _LEAST_SECONDS <= old <= _MOST_SECONDS else now


def _json(value: object, status: int = 200) -> _Answer:
    return _Answer(status, "application/json", json.dumps(value) + "\n")
