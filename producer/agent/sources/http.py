"""Events by POST over HTTP, with TLS or without. Source: Flume's ``HTTPSource``.

A request is one batch: 200 says that every required channel has committed it. A body that is none is 400, one that is
too large 413; while a channel is full, or memory is short, the answer is 503, with ``Retry-After``. What bodies are is
said by ``format``:

* ``json``: Flume's, ``[{"headers": {"a": "b"}, "body": "text"}, …]``;
* ``lines``: each line is an event, be it JSON or not;
* ``blob``: the body is one event, and the query's parameters are its headers.

Any of them may be packed with gzip.
"""

from __future__ import annotations

import hmac
import json
import logging
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from ...errors import ChannelError, ConfigError
from ..batch import EventBatch
from ..interfaces import Context, Outlet, Stop
from ..options import option
from .http_requests import Budget, Limits, Request, RequestError, RequestReader
from .listening import Connection, TcpOptions, TcpServer

_log = logging.getLogger("producer.agent.source.http")

_FORMATS = ("json", "lines", "blob")
_HANDLERS = {"jsonhandler": "json", "blobhandler": "blob"}


class HttpSource:
    """See the module."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(TcpOptions):
        """Those of Flume's ``http``, and bounds."""

        port: int = option(least=0, most=65535, doc="to listen on; 0 for any free one")
        silence: float = option(60.0, least=0.001, doc="seconds after which a silent connection is closed")
        format: str = option("json", doc="of bodies", choices=_FORMATS)
        mandatory_parameters: tuple[str, ...] = option((), doc="parameters without which a blob is refused")
        max_body: int = option(16 << 20, least=1, doc="bytes of a body, packed and unpacked")
        max_memory: int = option(128 << 20, least=1, doc="bytes of all bodies together, unpacked")
        request_timeout: float = option(60.0, least=0.001, doc="seconds that a request may take to come")
        put_timeout: float | None = option(
            None, least=0, doc="seconds to wait for room in a channel; empty for the channels' keep_alive"
        )
        retry_after: int = option(5, least=0, doc="seconds that a client is asked to wait when there is no room")
        user: str | None = option(None, doc="for basic authentication")
        password: str | None = option(None, secret=True, doc="likewise")
        token: str | None = option(None, secret=True, doc="for bearer authentication")

        def __post_init__(self) -> None:
            TcpOptions.__post_init__(self)
            if (self.user is None) != (self.password is None):
                raise ConfigError("user", "and password go together", self.user)

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Flume's handlers are our formats."""
            found = {key: value for key, value in texts.items() if key != "handler"}
            handler = texts.get("handler", "json")
            found["format"] = _HANDLERS.get(handler.rpartition(".")[2].lower(), handler.lower())
            if "handler.mandatoryParameters" in found:
                found["mandatoryParameters"] = found.pop("handler.mandatoryParameters").replace(",", " ")
            return found

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._limits = Limits(options.max_body, options.request_timeout, Budget(options.max_memory))
        self._allowed = _credentials(options)
        self.server = TcpServer(options, [options.port], context, self._serve)

    def run(self, outlet: Outlet, stop: Stop) -> None:
        """See :class:`~..interfaces.Source`."""
        self._outlet, self._stop = outlet, stop
        self.server.run(stop)

    def _serve(self, connection: Connection) -> None:
        reader = RequestReader(connection, self._limits)
        keeps = True
        while keeps and not self._stop.is_set():
            try:
                request = reader.head()
            except RequestError as error:
                self._answer(connection, error.status, str(error), keeps=False)
                break
            if request is None:
                return
            keeps = self._handle(connection, reader, request)
        connection.finish()

    def _handle(self, connection: Connection, reader: RequestReader, request: Request) -> bool:
        """Serve one request; whether another one may follow."""
        keeps = request.keeps
        try:
            self._check(request)
            batch = self._batch(request, reader.body(request))
            if batch.count:
                self._outlet.put(batch, self._options.put_timeout)
        except RequestError as error:
            keeps = keeps and not error.ends
            self._answer(connection, error.status, str(error), keeps)
        except ChannelError as error:
            _log.info("a request of %s is put off: %s", connection.peer, error)
            self._answer(connection, 503, "no room; the request is to be sent again", keeps)
        except OSError:
            raise
        except Exception:
            self._answer(connection, 500, "it failed", keeps=False)
            raise
        else:
            self._answer(connection, 200, "", keeps)
        finally:
            reader.release(request)
        return keeps

    def _check(self, request: Request) -> None:
        if self._allowed:
            given = request.headers.get("Authorization", "").encode("utf-8", "replace")
            if not any(hmac.compare_digest(given, allowed) for allowed in self._allowed):
                raise RequestError(401, "who is it?")
        if request.method != "POST":
            raise RequestError(405, "only POST is served")

    def _batch(self, request: Request, body: bytes) -> EventBatch:
        if self._options.format == "lines":
            return EventBatch.of_lines(body)
        if self._options.format == "blob":
            headers = request.parameters
            missing = [name for name in self._options.mandatory_parameters if name not in headers]
            if missing:
                raise RequestError(400, f"parameters are missing: {', '.join(missing)}", ends=False)
            return EventBatch.of_bodies([body], headers)
        return events_of_json(body)

    def _answer(self, connection: Connection, status: int, text: str, keeps: bool) -> None:
        body = f"{text}\n".encode() if text else b""
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}"]
        if body:
            lines.append("Content-Type: text/plain; charset=utf-8")
        if status == 503:
            lines.append(f"Retry-After: {self._options.retry_after}")
        if status == 401:
            lines.append(f'WWW-Authenticate: {"Basic" if self._options.user else "Bearer"} realm="events"')
        if status == 405:
            lines.append("Allow: POST")
        if not keeps:
            lines.append("Connection: close")
        connection.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def events_of_json(body: bytes) -> EventBatch:
    """Flume's list of events.

    :raises RequestError: it is none.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"no JSON: {error}", ends=False) from error
    if not isinstance(given, list):
        raise RequestError(400, "no list of events", ends=False)
    return EventBatch.of_events([_event(each) for each in given])


def _event(given: Any) -> tuple[dict[str, str], bytes]:
    headers = (given.get("headers") or {}) if isinstance(given, dict) else None
    body = (given.get("body") or "") if isinstance(given, dict) else None
    if not isinstance(headers, dict) or not isinstance(body, str):
        raise RequestError(400, "an event is an object of headers and a body that is text", ends=False)
    return {name: _text(value) for name, value in headers.items() if value is not None}, body.encode(errors="replace")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _credentials(options: HttpSource.Options) -> list[bytes]:
    """What stands in ``Authorization`` of those who may come; nothing if all may."""
    allowed = []
    if options.user is not None:
        allowed.append(b"Basic " + b64encode(f"{options.user}:{options.password}".encode()))
    if options.token is not None:
        allowed.append(f"Bearer {options.token}".encode())
    return allowed
