"""One request outside LogHub's API: it is not signed, not recorded, and meets no faults."""

from __future__ import annotations

import logging

from starlette.types import Receive, Scope, Send

from ..budget import Lease
from ..console.plain import PlainRequest, challenge, check_console
from ..console.table import PlainRow
from ..errors import ApiError, ClientGoneError
from ..messages import Answer, error_answer, new_request_id, parse_query
from ..service import Service
from .body import Body
from .connection import standard_headers
from .exchange import read_headers
from .outcomes import Wire, send_answer, wait_until_closed

_logger = logging.getLogger("loghub.server")


class PlainEndpoint:
    """The endpoint of one row, an ASGI application."""

    def __init__(self, service: Service, row: PlainRow) -> None:
        self._service = service
        self._row = row

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire, lease = Wire(scope, receive, send), Lease(self._service.memory)
        try:
            answer = await self._answer(wire, lease)
            headers = {"X-Content-Type-Options": "nosniff", **answer.headers}
            answer = Answer(status=answer.status, headers=headers, body=answer.body)
            await send_answer(wire, answer, standard_headers(new_request_id(), self._service.now(), answer))
        except ClientGoneError as error:
            _logger.debug("%s %s ended without an answer: %r", scope["method"], scope["path"], error)
            await wait_until_closed(wire)
        finally:
            lease.release()

    async def _answer(self, wire: Wire, lease: Lease) -> Answer:
        headers = read_headers(wire.scope)
        body = Body(headers, wire.receive)
        try:
            request = _request(wire, lease, headers, b"")
            if not self._row.is_public:
                check_console(self._service.access_keys, request)
            content = await body.read(self._service.limits.json_bytes)
            return await self._row.handler(self._service, _request(wire, lease, headers, content))
        except ApiError as error:
            await body.discard()
            asked = challenge(self._service.access_keys) if error.status == 401 else {}
            return error_answer(error.status, error.code, error.message, asked)
        except ClientGoneError:
            raise
        except Exception as error:
            _logger.exception("%s failed", self._row.path)
            return error_answer(500, "InternalServerError", f"the server failed: {error!r}")


def _request(wire: Wire, lease: Lease, headers: dict[str, str], body: bytes) -> PlainRequest:
    scope = wire.scope
    return PlainRequest(
        method=scope["method"],
        path=scope["path"],
        query={**parse_query(scope["query_string"]), **scope.get("path_params", {})},
        headers=headers,
        body=body,
        lease=lease,
        is_gone=wire.transport.is_closing,
    )
