"""The ASGI application, which routes each request to its operation."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence

from starlette.applications import Starlette
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..console.table import PLAIN_ROWS
from ..errors import ApiError
from ..messages import Answer, error_answer, new_request_id, parse_query, path_of_target, project_of
from ..operations.table import ROWS, Row
from ..service import Call, Handler, Operation, Service
from .connection import standard_headers
from .exchange import Exchange, read_headers
from .outcomes import Wire, send_answer
from .plain import PlainEndpoint


def make_app(service: Service) -> ASGIApp:
    """Return the application of one server."""
    numbers = itertools.count(1)
    routes: list[Route] = []
    unknown = Row("", "", Operation(name="Unknown", handler=_refuse_unknown(routes)))
    grouped = itertools.groupby(ROWS, lambda row: (row.path, row.method))
    routes += [
        Route(path, _Endpoint(service, numbers, [*rows, unknown]), methods=[method]) for (path, method), rows in grouped
    ]
    plain = [Route(row.path, PlainEndpoint(service, row), methods=[row.method]) for row in PLAIN_ROWS]
    every = Route("/{rest:path}", _Endpoint(service, numbers, [unknown]), methods=None)
    return _OriginForm(service, Starlette(routes=[*plain, *routes, every]))


class _OriginForm:
    """Rewrites absolute-form targets to origin form before routing."""

    def __init__(self, service: Service, app: ASGIApp) -> None:
        self._service = service
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            path = path_of_target(scope["raw_path"])
        except ApiError as error:
            await self._refuse(error, Wire(scope, receive, send))
            return
        if path == "/" and (answer := _answer_to_person(scope)) is not None:
            await send_answer(Wire(scope, receive, send), answer, standard_headers(new_request_id(), None, answer))
            return
        # A stopping server cancels its requests after it has cut their connections: no failure.
        with contextlib.suppress(asyncio.CancelledError):
            await self._app({**scope, "path": path}, receive, send)

    async def _refuse(self, error: ApiError, wire: Wire) -> None:
        # Without a path there is no operation and no exchange, so the answer is sent directly.
        answer = error_answer(error.status, error.code, error.message)
        await send_answer(wire, answer, standard_headers(new_request_id(), self._service.now(), answer))


def _answer_to_person(scope: Scope) -> Answer | None:
    """Return the answer to a person at the root of the server, or None for a client of LogHub, which signs."""
    headers = read_headers(scope)
    if scope["method"] != "GET" or "authorization" in headers or "x-log-apiversion" in headers:
        return None
    if "text/html" in headers.get("accept", ""):
        return Answer(status=302, headers={"Location": "/console"})
    console = f"http://{headers.get('host') or 'this server'}/console"
    text = f"This is an embedded LogHub. Its console for browsers: {console}\nClients of LogHub sign their requests.\n"
    return Answer(
        headers={"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}, body=text.encode()
    )


class _Endpoint:
    """The endpoint of a method and a path, an ASGI application that runs one exchange."""

    def __init__(self, service: Service, numbers: Iterator[int], rows: Sequence[Row]) -> None:
        self._service = service
        self._numbers = numbers
        self._rows = rows

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = Wire(scope, receive, send)
        await Exchange(self._service, wire, self._operation(scope), next(self._numbers)).run()

    def _operation(self, scope: Scope) -> Operation:
        """Return the requested operation; the last row matches any request."""
        first = self._rows[0]
        if first.is_meant is None:
            return first.operation
        query, project = parse_query(scope["query_string"]), project_of(read_headers(scope))
        return next(row.operation for row in self._rows if row.is_meant is None or row.is_meant(query, project))


def _refuse_unknown(routes: list[Route]) -> Handler:
    """Return the handler of requests that no route takes; it distinguishes a wrong method from a wrong path."""

    async def refuse(_service: Service, call: Call) -> Answer:
        method, path = call.request.method, call.request.path
        scope = {"type": "http", "path": path, "method": method}
        matches = {route.matches(scope)[0] for route in routes}
        if Match.FULL in matches:
            given = {name: call.request.query.get(name) for name in ("type", "action")}
            raise ApiError("ParameterInvalid", f"this server has no {method} {path} with {_listed(given)}")
        if Match.PARTIAL in matches:
            raise ApiError("InvalidMethod", f"{path} has no method {method}")
        raise ApiError("ParameterInvalid", f"this server has no {method} {path}")

    return refuse


def _listed(given: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {value[:64]!r}" if value is not None else f"no {name}" for name, value in given.items())
