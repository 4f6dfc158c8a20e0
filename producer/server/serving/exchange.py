"""One request from its head to its answer: faults, signature, body, operation, answer, record.

The head decides first. Its key, time, signature and lengths are checked before the server keeps any of the body, so a
client without a key takes no memory. The memory for a request is taken from the shared budget before its body is read.
The body of a refused request is still read and discarded: a client that is still sending reads no answer.
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

#: Largest body that is hashed on the event loop, bytes: for it a thread costs more than the hash.
_INLINE_BYTES = 16 * 1024


class Exchange:
    """A request and its answer."""

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
        """Carry the request out, and record it in any case."""
        self._plan = self._make_plan()
        try:
            answer = await self._prepare_or_end()
            # Recorded before the answer, so that a client with the answer finds the record.
            self._record(answer)
            if answer is not None:
                await self._deliver(answer)
        finally:
            self._lease.release()

    async def _prepare_or_end(self) -> Answer | None:
        """Return the answer, or None if the client has disconnected."""
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
            _logger.exception("an installed fault raised instead of returning an action")
            message = f"an installed fault raised {error!r}"
            return Plan(outcome=Refuse(status=500, code="InternalServerError", message=message))

    async def _prepare(self) -> Answer:
        """Carry the request out and return its proper answer; where a fault replaces that one, any answer."""
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
        """Return the body; empty if a fault forbids storing it.

        :raises ApiError: the request is refused.
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
        """Check the head, and return the digest that the body must have; None for a request without a signature.

        :raises ApiError: the request is refused.
        """
        request, limit = self._request, self._operation.max_body(self._service.limits)
        # Browsers do not send the absolute form, so its requests come from no page.
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
            detail = f"{error.message}: this server is an embedded LogHub, run by user {service.user!r}"
            raise ApiError(error.code, detail) from None

    async def _hold(self, size: int) -> None:
        """Hold ``size`` bytes of the server's memory; the wait does not count as the client's time."""
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
            # The client may send its body nevertheless, so the next bytes could be a body or a request.
            headers["Connection"] = "close"
        if outcome is None or isinstance(outcome, Refuse):
            await send_answer(self._wire, answer, headers)
        else:
            await commit(self._wire, outcome, answer, headers)

    def _record(self, answer: Answer | None) -> None:
        request = self._request
        is_sent = answer is not None and isinstance(self._plan.outcome, (Refuse, DripAnswer, type(None)))
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
            status=answer.status if answer and is_sent else None,
            error_code=answer.error_code if answer and is_sent else None,
            raw_size=_declared_raw_size(request),
            body_size=self._body.size,
            logs=answer.logs if answer else 0,
        )
        self._report(record)

    def _report(self, record: RequestRecord) -> None:
        service, address = self._service, (self._wire.scope.get("client") or ("",))[0]
        service.journal.add(record)
        service.activity.add(record, address, service.now())
        if service.access_log:
            log_access(record, address, service.now())


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request, names in lower case."""
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
