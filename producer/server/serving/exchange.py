"""One request from its head to its answer: faults, signature, body, operation, answer, record.

The head decides first. Its key, time, signature and lengths are checked before a byte of the body is kept, so nobody
without a key makes the server hold anything; and what a request will hold is taken from the memory that all requests
share before its body is read. What is refused is still taken from the client, and thrown away: a client that is still
sending reads no answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from urllib.parse import quote

from starlette.types import Scope

from ..activity import log_access
from ..auth import SignedDigest, authenticate, check_page, is_basic, knows_key
from ..budget import Lease
from ..errors import ApiError, ClientGoneError
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
    too_large,
)
from ..operations.names import check_name
from ..service import Call, Operation, Service
from .body import Body
from .connection import standard_headers
from .outcomes import Wire, commit, send_answer, wait_until_closed

_logger = logging.getLogger("loghub.server")

#: Bodies up to this size are hashed where they are: a thread costs more.
_INLINE_BYTES = 16 * 1024


class Exchange:
    """One request and its answer."""

    def __init__(self, service: Service, wire: Wire, operation: Operation, number: int) -> None:
        self._service = service
        self._wire = wire
        self._operation = operation
        self._when = time.monotonic()
        self._request = _read_head(wire, operation.name, number)
        self._body = Body(self._request.headers, wire.receive)
        self._lease = Lease(service.memory)
        self._plan = Plan()

    async def run(self) -> None:
        """Carry it out, and leave a record whatever happens."""
        self._plan = self._make_plan()
        try:
            answer = await self._prepare_or_end()
            # Before the answer, so that a client that has it finds the record.
            self._record(answer)
            if answer is not None:
                await self._deliver(answer)
        finally:
            self._lease.release()

    async def _prepare_or_end(self) -> Answer | None:
        """The answer, or None when nobody waits for it any more."""
        try:
            return await self._prepare()
        except (ClientGoneError, asyncio.CancelledError) as error:
            _logger.debug("%s %s ended without an answer: %r", self._request.method, self._request.path, error)
            if isinstance(error, asyncio.CancelledError):
                self._record(None)
                raise
            await wait_until_closed(self._wire)
            return None

    def _make_plan(self) -> Plan:
        try:
            return self._service.faults.plan(self._request)
        except Exception as error:
            _logger.exception("a fault raised instead of returning what to do")
            message = f"an installed fault raised {error!r}"
            return Plan(outcome=Refuse(status=500, code="InternalServerError", message=message))

    async def _prepare(self) -> Answer:
        """The answer that would be proper, or stands for one that will not be sent; what was asked is done by then."""
        outcome = self._plan.outcome
        if isinstance(outcome, Cut) and outcome.when in ("before_body", "in_body"):
            if outcome.when == "in_body":
                await self._body.discard_half()
            return Answer()
        try:
            body = await self._receive()
            if isinstance(outcome, Refuse):
                return _refusal(outcome)
            if _forbids_storing(self._plan):
                return Answer()
            answer = await self._operate(body)
            await asyncio.sleep(self._plan.delay_stored)
            await self._hold(len(answer.body))
            return answer
        except ApiError as error:
            self._lease.release()
            return error_answer(error.status, error.code, error.message)

    async def _receive(self) -> bytes:
        """The body, if it is wanted.

        :raises ApiError: the request must not reach its operation.
        """
        try:
            body = await self._receive_wanted()
        except ApiError:
            await self._body.discard()
            await asyncio.sleep(self._plan.delay)
            raise
        await asyncio.sleep(self._plan.delay)
        return body

    async def _receive_wanted(self) -> bytes:
        if _forbids_storing(self._plan):
            await self._body.discard()
            return b""
        digest = self._admit()
        limits = self._service.limits
        await self._hold(self._operation.holds(self._request, self._body.declared, limits))
        body = await self._body.read(self._operation.max_body(limits))
        if digest is None:
            return body
        if len(body) <= _INLINE_BYTES:
            digest.check(body)
        else:
            await self._service.offload(digest.check, body)
        return body

    def _admit(self) -> SignedDigest | None:
        """Refuse by its head what must not reach an operation; the result is what its body must be, if that was
        signed.
        """
        request, limit = self._request, self._operation.max_body(self._service.limits)
        # No browser asks a server in the form for proxies.
        if self._wire.scope["raw_path"].startswith(b"/"):
            check_page(self._service.access_keys, request.headers)
        digest = self._authenticate()
        if request.project or self._operation.needs_project:
            check_name("project", check_project(request.project))
        if "logstore" in request.path_params:
            check_name("logstore", request.logstore)
        if (self._body.declared or 0) > limit:
            raise too_large(self._body.declared or 0, limit)
        return digest

    def _authenticate(self) -> SignedDigest | None:
        request, service = self._request, self._service
        if self._operation.takes_basic and is_basic(request.headers):
            if not knows_key(service.access_keys, request.headers["authorization"]):
                raise ApiError("Unauthorized", "user and password must be the id and the secret of an access key")
            return None
        check_api_version(request.headers)
        try:
            return authenticate(
                request.to_verify(), service.access_keys, self._now(), self._body.declared or 0, service.region
            )
        except ApiError as error:
            if error.code != "InvalidAccessKeyId" or not service.user:
                raise
            said = f"{error.message}: this server is an embedded LogHub, and runs as user {service.user!r}"
            raise ApiError(error.code, said) from None

    async def _hold(self, size: int) -> None:
        """Have ``size`` bytes of the server's memory; the client is not to blame for the wait."""
        with self._wire.connection.untimed():
            await self._lease.resize(size)

    async def _operate(self, body: bytes) -> Answer:
        call = Call(request=self._request, body=body, lease=self._lease, is_gone=self._wire.transport.is_closing)
        try:
            return await self._operation.handler(self._service, call)
        except (ApiError, ClientGoneError):
            raise
        except Exception as error:
            _logger.exception("%s failed", self._request.operation)
            raise ApiError("InternalServerError", f"the server failed: {error!r}") from error

    def _now(self) -> float:
        return self._service.now() + self._plan.clock_offset

    async def _deliver(self, answer: Answer) -> None:
        headers = standard_headers(self._request.request_id, self._now(), answer)
        if self._service.user:
            headers["x-log-embedded-user"] = quote(self._service.user)
        outcome = self._plan.outcome
        if self._body.is_withheld:
            # Whether the client sends its body all the same is its choice, so what follows could be anything.
            headers["Connection"] = "close"
        if outcome is None or isinstance(outcome, Refuse):
            await send_answer(self._wire, answer, headers)
        else:
            await commit(self._wire, outcome, answer, headers)

    def _record(self, answer: Answer | None) -> None:
        request = self._request
        told = answer is not None and isinstance(self._plan.outcome, (Refuse, DripAnswer, type(None)))
        record = RequestRecord(
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
            body_size=self._body.size,
            logs=answer.logs if answer else 0,
        )
        self._tell(record)

    def _tell(self, record: RequestRecord) -> None:
        service, address = self._service, (self._wire.scope.get("client") or ("",))[0]
        service.journal.add(record)
        service.activity.add(record, address, service.now())
        if service.access_log:
            log_access(record, address, service.now())


def read_headers(scope: Scope) -> dict[str, str]:
    """The headers of a request, names in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _read_head(wire: Wire, operation: str, number: int) -> ApiRequest:
    scope = wire.scope
    headers = read_headers(scope)
    path_params = scope.get("path_params", {})
    return ApiRequest(
        request_id=new_request_id(),
        number=number,
        operation=operation,
        method=scope["method"],
        path=scope["path"],
        query=parse_query(scope["query_string"]),
        headers=headers,
        project=path_params.get("project", "").lower() or project_of(headers),
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
    return isinstance(outcome, Refuse) or (isinstance(outcome, RawAnswer) and not outcome.stored)


def _declared_raw_size(request: ApiRequest) -> int:
    try:
        return request.raw_size or 0
    except ApiError:
        return 0
