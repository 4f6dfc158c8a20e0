"""PostSource: events by POST over HTTP, with TLS or without.

A request is one batch. 200 means that every required channel has committed it. A body that is invalid, or that no
channel can ever take, is answered with 400, one that is too large with 413. While a channel is full, memory is short,
or an interceptor fails, the answer is 503 with ``Retry-After``. Clients retry after a 503; after a 500 many drop their
events.
"""

from __future__ import annotations

import hmac
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...model.errors import ConfigError
from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet
from .budget import Budget
from .http_requests import Limits, Request, RequestError
from .intake import Intake, NeverTakenError, NotTakenError, short_of_memory
from .listening import Connection, TcpOptions, TcpSource

if TYPE_CHECKING:
    from .http_reader import RequestReader


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions(TcpOptions):
    """Options of all sources of HTTP requests."""

    silence: float = option(60.0, least=0.001, doc="seconds after which a silent connection is closed")
    max_body: int = option(32 << 20, least=1, unit="bytes", doc="maximum bytes of a body, packed and unpacked")
    max_memory: int = option(
        128 << 20, least=1, unit="bytes", doc="maximum bytes of all requests: unpacked bodies, and parsed JSON"
    )
    request_timeout: float = option(60.0, least=0.001, doc="seconds for a request to arrive")
    put_timeout: float | None = option(
        None, least=0, doc="seconds to wait for room in a channel; empty for the channels' keep_alive"
    )
    retry_after: int = option(5, least=0, doc="seconds until a client may retry when there is no room")
    user: str | None = option(None, doc="user for basic authentication")
    password: str | None = option(None, secret=True, doc="password for basic authentication")
    token: str | None = option(None, secret=True, doc="token for bearer authentication")

    def __post_init__(self) -> None:
        TcpOptions.__post_init__(self)
        if (self.user is None) != (self.password is None):
            raise ConfigError("user", "must be given together with password", self.user)

    def holds(self) -> int:
        """Return the maximum bytes that the source holds."""
        return self.max_memory

    def limits(self) -> Limits:
        """Return the limits of requests, with their budget of memory."""
        return Limits(self.max_body, self.request_timeout, Budget(self.max_memory, self.max_body))


class PostSource(TcpSource):
    """Source that puts the events of each request as one batch, and answers with the outcome.

    :param port: the port to listen on; 0 for any free one.
    :param paths: the paths that are served; empty for all.
    """

    needs: ClassVar = {"h11": "agent"}
    #: The status of the answer to a committed request.
    accepted: ClassVar = 200

    def __init__(self, options: RequestOptions, port: int, context: Context, *, paths: Collection[str] = ()) -> None:
        super().__init__(options, [port], context)
        self._rules, self._paths, self._limits = options, paths, options.limits()
        self._allowed = credentials_of(options)

    def _serve(self, connection: Connection) -> None:
        from .http_reader import RequestReader  # h11 is an extra

        reader = RequestReader(connection, self._limits)
        keeps = True
        while keeps and not self._stop.is_set():
            try:
                request = reader.head()
            except RequestError as error:
                self._answer_with(reader, error.status, str(error), ends=True)
                break
            if request is None:
                return
            keeps = self._handle(connection.peer, reader, request)
        connection.finish()

    def _handle(self, peer: str, reader: RequestReader, request: Request) -> bool:
        """Serve one request; return True if another may follow."""
        try:
            self._check(request)
            check_memory(self._outlet)
            batches = self._batches(request, reader.body(request))
            put_request(self._intake, self._outlet, batches, self._rules.put_timeout, peer)
        except RequestError as error:
            return self._answer_with(reader, error.status, str(error))
        except OSError:
            raise
        except Exception:
            self._answer_with(reader, 500, "internal error", ends=True)
            raise
        finally:
            request.held.keep(0)
        kind, body = self._accepted(request)
        return reader.answer(self.accepted, [("Content-Type", kind)] if kind else [], body)

    def _check(self, request: Request) -> None:
        if self._paths and request.path not in self._paths:
            raise RequestError(404, f"events are accepted only at {', '.join(self._paths)}")
        check_credentials(self._allowed, request.headers.get("authorization", ""))
        if request.method != "POST":
            raise RequestError(405, "only POST is served")

    @abstractmethod
    def _batches(self, request: Request, body: bytes) -> Iterable[EventBatch]:
        """Return the events of a request, in one batch unless their headers differ too much.

        :raises RequestError: the body is invalid.
        """

    def _accepted(self, request: Request) -> tuple[str, bytes]:
        """Return the type and the body of the answer to a committed request."""
        return "", b""

    def _answer_with(self, reader: RequestReader, status: int, text: str, *, ends: bool = False) -> bool:
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        if status == 503:
            headers.append(("Retry-After", str(self._rules.retry_after)))
        if status == 401:
            headers.append(("WWW-Authenticate", f'{"Basic" if self._rules.user else "Bearer"} realm="events"'))
        if status == 405:
            headers.append(("Allow", "POST"))
        return reader.answer(status, headers, f"{text}\n".encode(), ends=ends)


def check_memory(outlet: Outlet) -> None:
    """:raises RequestError: the process has reached its memory limit, so the request is refused unread."""
    if short_of_memory(outlet):
        raise RequestError(503, "no memory is free now: send the request again")


def put_request(
    intake: Intake, outlet: Outlet, batches: Iterable[EventBatch], timeout: float | None, peer: str
) -> None:
    """Put the events of a request.

    :param timeout: seconds to wait for room in a channel.
    :raises RequestError: they were not put.
    """
    try:
        for batch in batches:
            if batch.count:
                intake.put(outlet, batch, timeout, peer)
    except NeverTakenError as error:
        raise RequestError(400, str(error)) from error
    except NotTakenError as error:
        raise RequestError(503, f"{error}: send the request again") from error


def check_credentials(allowed: Sequence[bytes], given: str) -> None:
    """Check the value of ``Authorization``.

    :param allowed: the result of :func:`credentials_of`.
    :raises RequestError: the credentials are needed, and missing or wrong.
    """
    data = given.encode("utf-8", "replace")
    if allowed and not any(hmac.compare_digest(data, each) for each in allowed):
        raise RequestError(401, "the credentials are missing or wrong")


def credentials_of(options: RequestOptions) -> list[bytes]:
    """Return the accepted values of ``Authorization``; none if requests are not authenticated."""
    allowed = []
    if options.user is not None:
        allowed.append(b"Basic " + b64encode(f"{options.user}:{options.password}".encode()))
    if options.token is not None:
        allowed.append(f"Bearer {options.token}".encode())
    return allowed
