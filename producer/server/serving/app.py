"""The ASGI application: which request is which operation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from starlette.applications import Starlette
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import ApiError
from ..messages import Answer, ApiRequest, error_answer, new_request_id, path_of_target
from ..operations import admin, get_logs, pull_logs, put_logs
from ..service import Handler, Service
from .connection import standard_headers
from .exchange import Exchange
from .outcomes import Wire, send_answer

_LOGSTORE = "/logstores/{logstore}"

_OPERATIONS: list[tuple[str, str, str, Handler]] = [
    ("POST", "/", "CreateProject", admin.create_project),
    ("GET", "/", "GetProject", admin.get_project),
    ("POST", "/logstores", "CreateLogstore", admin.create_logstore),
    ("GET", "/logstores", "ListLogstores", admin.list_logstores),
    ("POST", f"{_LOGSTORE}", "PutLogs", put_logs.put_logs),
    ("GET", f"{_LOGSTORE}", "GetLogstore", admin.read_logstore),
    ("POST", f"{_LOGSTORE}/logs", "GetLogs", get_logs.get_logs_by_json),
    ("GET", f"{_LOGSTORE}/shards", "ListShards", admin.list_shards),
    ("POST", f"{_LOGSTORE}/shards/lb", "PutLogs", put_logs.put_logs),
    ("POST", f"{_LOGSTORE}/shards/route", "PutLogs", put_logs.put_logs_by_key),
    ("GET", f"{_LOGSTORE}/shards/{{shard}}", "PullLogs", pull_logs.read_shard),
]


def make_app(service: Service) -> ASGIApp:
    """The application of one server."""
    numbers = itertools.count(1)
    routes = [
        Route(path, _Operation(service, numbers, name, handler), methods=[method])
        for method, path, name, handler in _OPERATIONS
    ]
    unknown = _Operation(service, numbers, "Unknown", _refuse_unknown(routes))
    every = Route("/{rest:path}", unknown, methods=None)
    return _OriginForm(service, Starlette(routes=[*routes, every]))


class _OriginForm:
    """Gives absolute-form targets the path that their origin form would have, before anything is routed."""

    def __init__(self, service: Service, app: ASGIApp) -> None:
        self._service = service
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            path = path_of_target(scope["raw_path"])
        except ApiError as error:
            await self._refuse(error, Wire(scope, receive, send))
            return
        await self._app({**scope, "path": path}, receive, send)

    async def _refuse(self, error: ApiError, wire: Wire) -> None:
        # Without a path there is no operation, and so no exchange: this is answered like bytes that are not HTTP.
        answer = error_answer(error.status, error.code, error.message)
        await send_answer(wire, answer, standard_headers(new_request_id(), self._service.now(), answer))


class _Operation:
    """The endpoint of one operation: an ASGI application that carries one exchange out."""

    def __init__(self, service: Service, numbers: Iterator[int], name: str, handler: Handler) -> None:
        self._service = service
        self._numbers = numbers
        self._name = name
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = Wire(scope, receive, send)
        await Exchange(self._service, wire, self._name, next(self._numbers)).run(self._handler)


def _refuse_unknown(routes: list[Route]) -> Handler:
    """The handler of what no route takes: tells a wrong method from a wrong path."""

    async def refuse(_service: Service, request: ApiRequest, _body: bytes) -> Answer:
        scope = {"type": "http", "path": request.path, "method": request.method}
        if any(route.matches(scope)[0] is not Match.NONE for route in routes):
            raise ApiError("InvalidMethod", f"{request.method} is not a method of {request.path}")
        raise ApiError("ParameterInvalid", f"this server has no {request.method} {request.path}")

    return refuse
