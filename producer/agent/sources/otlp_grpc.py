"""Server of OpenTelemetry's calls (OTLP/gRPC), by the library grpcio.

A call is one batch. OK means that every required channel has committed it. While a channel is full, memory is short, or
an interceptor fails, the answer is ``UNAVAILABLE`` with ``RetryInfo``, so the sender tries again. An invalid message,
or one with too many events, gets ``INVALID_ARGUMENT``, one of more than ``max_body`` bytes ``RESOURCE_EXHAUSTED``, and
a signal that is not accepted ``UNIMPLEMENTED``.

Peers are not trusted. Messages are decompressed here, since the library would decompress them before it checks their
size. The library delivers only whole messages. So a call reserves ``max_body`` bytes of ``max_memory`` before it
receives, for at most ``request_timeout`` seconds. One address has at most half of the calls.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc

from ...runtime.clock import Stop
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.addresses import bracketed
from ..events.interfaces import Context, Outlet
from ..protocols.grpc_statuses import METHODS, retry_metadata
from ..protocols.tls_files import RenewedTls
from .budget import Holding
from .http_requests import Request, RequestError, refusing
from .intake import Intake
from .listening import listening
from .otlp_requests import PROTOBUF, OtlpOptions, batches_of_body
from .posts import check_credentials, check_memory, credentials_of, put_request
from .unix_sockets import PREFIX, is_unix
from .unpacking import UnpackingError, packing_of, unpacked

_log = get_logger("loghub.agent.source")

#: Maximum number of calls served at once, of calls served or queued, and of the streams of a connection.
_CALLS, _WAITING, _STREAMS = 64, 1024, 100
#: Seconds between two checks of waiting calls, and until calls are ended when the source stops.
_CHECK_SECONDS, _END_SECONDS = 1.0, 10.0
#: Maximum bytes of metadata, and characters of an error in an answer.
_MOST_METADATA, _MOST_SHOWN = 1 << 14, 500
#: Milliseconds without data until the server pings a peer, and the minimum between a peer's pings.
_KEEP_ALIVE, _PINGS = 60_000, 10_000
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
}


class OtlpGrpc:
    """Source of calls that export logs, traces or metrics.

    :ivar addresses: the addresses listened on, once :attr:`listening` is set.
    """

    def __init__(self, options: OtlpOptions, context: Context) -> None:
        self._options, self._name, self._counters = options, context.name, context.counters
        self._intake, self._allowed = Intake(context), credentials_of(options)
        self._limits = options.limits()
        self._calls, self._failures = _Calls(options.request_timeout), RateLimitedLog(context.clock)
        self._server = GrpcServer(options, context, self._handler)
        self.addresses, self.listening = self._server.addresses, self._server.listening

    def run(self, outlet: Outlet, stop: Stop) -> None:
        self._outlet, self._stop = outlet, stop
        with self._server.serving():
            while not stop.wait(_CHECK_SECONDS):
                self._calls.cancel_late()
            self._calls.cancel_all()

    def _handler(self, method: str) -> grpc.RpcMethodHandler | None:
        signal = METHODS.get(method)
        if signal not in self._options.signals:
            return None  # the library answers UNIMPLEMENTED
        return grpc.stream_unary_rpc_method_handler(lambda messages, call: self._serve(signal, messages, call))

    def _serve(self, signal: str, messages: Iterator[bytes], call: grpc.ServicerContext) -> bytes:
        """Serve one call; return the empty response."""
        request = Request("POST", signal, {}, Holding(self._limits.budget, _address(call.peer())))
        try:
            with self._calls.one_of(request.held.peer):
                self._take(signal, request, messages, call)
        except RequestError as error:
            self._refuse(call, error)
        except grpc.RpcError:  # the client disconnected, or was too slow
            self._counters.add(ConnectionFailedCount=1)
        except Exception as error:  # noqa: BLE001  # a bug; other calls continue
            self._counters.add(GenericProcessingFail=1)
            if (more := self._failures.due_error(error)) is not None:
                _log.exception("source %s: a call of %s failed%s", self._name, request.held.peer, more)
            self._refuse(call, RequestError(500, "internal error"))
        finally:
            request.held.keep(0)
        return b""

    def _take(self, signal: str, request: Request, messages: Iterator[bytes], call: grpc.ServicerContext) -> None:
        given = dict(call.invocation_metadata()).get("authorization", "")
        check_credentials(self._allowed, given if isinstance(given, str) else "")
        check_memory(self._outlet)
        body = self._unpacked(request, self._received(request, messages, call))
        batches = batches_of_body(self._limits, request, PROTOBUF, signal, body)
        put_request(self._intake, self._outlet, batches, self._options.put_timeout, request.held.peer)

    def _received(self, request: Request, messages: Iterator[bytes], call: grpc.ServicerContext) -> bytes:
        """Receive the message of a call, once there is memory for it.

        :raises RequestError: no memory became free in time, or the call has no message.
        """
        until = time.monotonic() + self._options.request_timeout
        most = min(self._options.max_body, self._limits.budget.size)
        while self._stop.is_set() or not request.held.take(most):
            if self._stop.is_set() or time.monotonic() > until or not call.is_active():
                raise RequestError(503, "no memory is free for the request: send it again")
            request.held.wait(most, _CHECK_SECONDS)
        with self._calls.receiving(call):
            message = next(messages, None)
        if message is None:
            raise RequestError(400, "the call has no message")
        request.held.keep(len(message))
        return message

    def _unpacked(self, request: Request, message: bytes) -> bytes:
        """Decompress a message if it is compressed; OTLP messages begin with other bytes."""
        kind = packing_of(message)
        if kind is None:
            return message
        with refusing(UnpackingError, prefix="the message cannot be unpacked: "):
            return self._limits.collected(request, unpacked(kind, [message]))

    def _refuse(self, call: grpc.ServicerContext, error: RequestError) -> None:
        code, text = _CODES[error.status], str(error)[:_MOST_SHOWN]
        if error.status == 503:
            call.set_trailing_metadata(retry_metadata(code.value[0], text, self._options.retry_after))
        call.abort(code, text)


class _Calls:
    """The current calls; thread-safe.

    :param seconds: the maximum time to receive a message, seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._lock = seconds, Lock()  # guards the fields below
        self._of_peers = Counter[str]()
        self._receiving: dict[grpc.ServicerContext, float] = {}

    @contextlib.contextmanager
    def one_of(self, peer: str) -> Iterator[None]:
        """Count a call of an address during the block.

        :raises RequestError: the address already has half of all calls.
        """
        with self._lock:
            if self._of_peers[peer] >= _CALLS // 2:
                raise RequestError(
                    503, f"this address has reached its limit of {_CALLS // 2} calls at once: send the request again"
                )
            self._of_peers[peer] += 1
        try:
            yield
        finally:
            with self._lock:
                self._of_peers[peer] -= 1
                if not self._of_peers[peer]:
                    del self._of_peers[peer]

    @contextlib.contextmanager
    def receiving(self, call: grpc.ServicerContext) -> Iterator[None]:
        """Mark a call as receiving its message during the block."""
        with self._lock:
            self._receiving[call] = time.monotonic() + self._seconds
        try:
            yield
        finally:
            with self._lock:
                del self._receiving[call]

    def cancel_late(self) -> None:
        """Cancel the calls whose messages have not arrived in time."""
        self._cancel(time.monotonic())

    def cancel_all(self) -> None:
        """Cancel the calls whose messages have not arrived."""
        self._cancel(float("inf"))

    def _cancel(self, now: float) -> None:
        with self._lock:
            receiving = list(self._receiving.items())
        for call, until in receiving:
            if until < now:
                call.cancel()


class GrpcServer(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Server of calls on the address of a source.

    :param handler: returns the handler of a method; None for an unknown one.
    :ivar addresses: the addresses listened on, once :attr:`listening` is set.
    """

    def __init__(
        self, options: OtlpOptions, context: Context, handler: Callable[[str], grpc.RpcMethodHandler | None]
    ) -> None:
        self._options, self._name, self._handler = options, context.name, handler
        own = options.certificate, options.key
        self._tls = RenewedTls(self._credentials, own, options.client_authorities, f"source {context.name}", context)
        self.addresses: list[tuple[str, int]] = []
        self.listening = threading.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handler(handler_call_details.method)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Listen during the block; then let the calls end, in ten seconds at most.

        :raises OSError: the address is not available.
        """
        pool = ThreadPoolExecutor(_CALLS, thread_name_prefix=f"producer-agent-{self._name}")
        options = _arguments(self._options)
        server = grpc.server(pool, handlers=[self], options=options, maximum_concurrent_rpcs=_WAITING)
        with contextlib.ExitStack() as ends:
            ends.callback(pool.shutdown, wait=False)
            ends.callback(lambda: server.stop(_END_SECONDS).wait())
            self.addresses.append(self._listen(server, ends))
            server.start()
            self.listening.set()
            yield

    def _listen(self, server: grpc.Server, ends: contextlib.ExitStack) -> tuple[str, int]:
        options = self._options
        with listening(options, options.port or 0):  # the library does not report why it cannot listen
            pass
        place = options.bind if is_unix(options.bind) else f"{bracketed(options.bind)}:{options.port}"
        try:
            port: int = self._add(server, place)
        except RuntimeError as error:
            raise OSError(f"{place}: cannot listen: {error}") from error
        if not is_unix(options.bind):
            return options.bind, port
        path = options.bind.removeprefix(PREFIX)
        ends.callback(Path(path).unlink, missing_ok=True)
        os.chmod(path, int(options.socket_mode, 8))
        return path, 0

    def _add(self, server: grpc.Server, place: str) -> Any:
        first = self._tls.context()
        if first is None:
            return server.add_insecure_port(place)
        used = [first]

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            """Return the current certificate for a handshake; None if it has not changed."""
            current = self._tls.context()
            if current is used[0] or current is None:
                return None
            used[0] = current
            return current

        needs_client = self._options.client_authorities is not None
        credentials = grpc.dynamic_ssl_server_credentials(first, fetch, require_client_authentication=needs_client)
        return server.add_secure_port(place, credentials)

    def _credentials(self) -> grpc.ServerCertificateConfiguration | None:
        options = self._options
        if options.tls() is None or options.certificate is None:  # it also checks the files
            return None
        pair = (options.key or options.certificate).read_bytes(), options.certificate.read_bytes()
        authorities = options.client_authorities
        return grpc.ssl_server_certificate_configuration([pair], authorities and authorities.read_bytes())


def _arguments(options: OtlpOptions) -> list[tuple[str, int]]:
    """Return the library's options of a server."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.per_message_decompression", 0),
        ("grpc.max_receive_message_length", options.max_body),
        ("grpc.max_metadata_size", _MOST_METADATA),
        ("grpc.absolute_max_metadata_size", _MOST_METADATA),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_allowed_incoming_connections", options.max_connections),
        ("grpc.max_connection_idle_ms", round(options.silence * 1000)),
        ("grpc.server_handshake_timeout_ms", round(options.handshake_timeout * 1000)),
        ("grpc.keepalive_time_ms", _KEEP_ALIVE),
        ("grpc.http2.min_ping_interval_without_data_ms", _PINGS),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _address(peer: str) -> str:
    """Return the address of a peer, such as ``ipv4:127.0.0.1:5`` or ``ipv6:%5B::1%5D:5``."""
    kind, _, place = unquote(peer).partition(":")
    return place.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else kind
