"""One request from its head to its answer: faults, body, signature, operation, answer, record."""

from __future__ import annotations

import asyncio
import logging
import time

from ..auth import authenticate
from ..errors import ApiError
from ..faults import Cut, DripAnswer, Plan, RawAnswer, Refuse
from ..journal import RequestRecord
from ..messages import (
    Answer,
    ApiRequest,
    check_api_version,
    check_project,
    error_answer,
    new_request_id,
    parse_query,
    project_of,
)
from ..operations.admin import check_name
from ..operations.put_logs import too_large
from ..service import Handler, Service
from .connection import standard_headers
from .outcomes import Wire, commit, send_answer

_logger = logging.getLogger("producer.server")

#: Of a body that is too large, this much is read before it is refused: a client that is still sending reads no answer.
_MAX_DISCARDED_BYTES = 64 * 1024 * 1024
#: Bodies up to this size are hashed where they are: a thread costs more.
_INLINE_BYTES = 16 * 1024


class ClientGoneError(Exception):
    """The client went away before its request was whole."""


class Exchange:
    """One request and its answer."""

    def __init__(self, service: Service, wire: Wire, operation: str, number: int) -> None:
        self._service = service
        self._wire = wire
        self._when = time.monotonic()
        self._request = _read_head(wire, operation, number)
        self._body_size = 0
        self._plan = Plan()

    async def run(self, handler: Handler) -> None:
        """Carry it out, and leave a record whatever happens."""
        self._plan = self._make_plan()
        try:
            answer = await self._prepare(handler)
        except (ClientGoneError, asyncio.CancelledError) as error:
            _logger.debug("%s %s ended without an answer: %r", self._request.method, self._request.path, error)
            self._record(None)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        # Before the answer, so that a client that has it finds the record.
        self._record(answer)
        await self._deliver(answer)

    def _make_plan(self) -> Plan:
        try:
            return self._service.faults.plan(self._request)
        except Exception as error:
            _logger.exception("a fault raised instead of returning what to do")
            message = f"an installed fault raised {error!r}"
            return Plan(outcome=Refuse(status=500, code="InternalServerError", message=message))

    async def _prepare(self, handler: Handler) -> Answer:
        """The answer that would be proper, or stands for one that will not be sent; what was asked is done by then."""
        outcome = self._plan.outcome
        if isinstance(outcome, Cut) and outcome.when in ("before_body", "in_body"):
            await self._read_part(outcome)
            return Answer()
        try:
            body = await self._read_body()
            await asyncio.sleep(self._plan.delay)
            if isinstance(outcome, Refuse):
                return _refusal(outcome)
            if _forbids_storing(self._plan):
                return Answer()
            answer = await self._operate(handler, body)
            await asyncio.sleep(self._plan.delay_stored)
            return answer
        except ApiError as error:
            return error_answer(error.status, error.code, error.message)

    async def _operate(self, handler: Handler, body: bytes) -> Answer:
        try:
            await self._admit(body)
            return await handler(self._service, self._request, body)
        except (ApiError, ClientGoneError):
            raise
        except Exception as error:
            _logger.exception("%s failed", self._request.operation)
            raise ApiError("InternalServerError", f"the server failed: {error!r}") from error

    async def _admit(self, body: bytes) -> None:
        """Refuse what must not reach an operation."""
        request, service = self._request, self._service
        check_api_version(request.headers)
        to_verify, now = request.to_verify(body), self._now()
        if len(body) <= _INLINE_BYTES:
            authenticate(to_verify, service.access_keys, now)
        else:
            await service.offload(authenticate, to_verify, service.access_keys, now)
        check_name("project", check_project(request.project))
        if "logstore" in request.path_params:
            check_name("logstore", request.logstore)

    def _now(self) -> float:
        return self._service.now() + self._plan.clock_offset

    async def _read_body(self) -> bytes:
        limits = self._service.limits
        chunks: list[bytes] = []
        more = True
        while more and self._body_size <= max(_MAX_DISCARDED_BYTES, limits.wire_bytes):
            chunk, more = await self._receive()
            if self._body_size > limits.wire_bytes:
                chunks.clear()
            else:
                chunks.append(chunk)
        if self._body_size > limits.wire_bytes:
            raise too_large(self._body_size, limits)
        return b"".join(chunks)

    async def _receive(self) -> tuple[bytes, bool]:
        """The next part of the body, and whether more follows."""
        message = await self._wire.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk: bytes = message.get("body", b"")
        self._body_size += len(chunk)
        return chunk, message.get("more_body", False)

    async def _read_part(self, outcome: Cut) -> None:
        """Half of the body for a cut within it, nothing for a cut before it."""
        declared = self._request.headers.get("content-length", "0")
        half = int(declared) // 2 if outcome.when == "in_body" and declared.isdigit() else 0
        while self._body_size < half:
            await self._receive()

    async def _deliver(self, answer: Answer) -> None:
        headers = standard_headers(self._request.request_id, self._now(), answer)
        outcome = self._plan.outcome
        if outcome is None or isinstance(outcome, Refuse):
            await send_answer(self._wire, answer, headers)
        else:
            await commit(self._wire, outcome, answer, headers)

    def _record(self, answer: Answer | None) -> None:
        request = self._request
        told = answer is not None and isinstance(self._plan.outcome, (Refuse, DripAnswer, type(None)))
        self._service.journal.add(
            RequestRecord(
                number=request.number,
                when=self._when,
                finished=time.monotonic(),
                operation=request.operation,
                method=request.method,
                path=request.path,
                query=request.query,
                headers=request.headers,
                project=request.project,
                logstore=request.logstore,
                request_id=request.request_id,
                status=answer.status if answer and told else None,
                error_code=answer.error_code if answer and told else None,
                raw_size=_declared_raw_size(request),
                body_size=self._body_size,
                logs=answer.logs if answer else 0,
            )
        )


def _read_head(wire: Wire, operation: str, number: int) -> ApiRequest:
    scope = wire.scope
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path_params = scope.get("path_params", {})
    return ApiRequest(
        request_id=new_request_id(),
        number=number,
        operation=operation,
        method=scope["method"],
        path=scope["path"],
        query=parse_query(scope["query_string"]),
        headers=headers,
        project=project_of(headers),
        logstore=path_params.get("logstore", ""),
        path_params=path_params,
    )


def _refusal(outcome: Refuse) -> Answer:
    answer = error_answer(outcome.status, outcome.code, outcome.message, outcome.headers)
    if outcome.body is None:
        return answer
    headers = {"Content-Type": "text/html", **outcome.headers}
    return Answer(status=outcome.status, headers=headers, body=outcome.body, error_code=outcome.code)


def _forbids_storing(plan: Plan) -> bool:
    outcome = plan.outcome
    if isinstance(outcome, Cut):
        return outcome.when != "stored"
    return isinstance(outcome, RawAnswer) and not outcome.stored


def _declared_raw_size(request: ApiRequest) -> int:
    try:
        return request.raw_size or 0
    except ApiError:
        return 0
