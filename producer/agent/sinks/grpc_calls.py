"""GrpcTransport: makes gRPC calls for :class:`.http_requests.RequestSink`, by the library grpcio.

The status of a call is translated to HTTP's, and ``RetryInfo`` to ``Retry-After``. So a sink needs no code of its own
for refusals and pauses.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import grpc

from ...model.config import HttpConfig
from ...runtime.clock import NO_DEADLINE, Clock, Deadline
from ...sinks.http.ca_bundle import file_of_authorities
from ...sinks.http.proxies import proxies_for, proxy_of
from ...sinks.http.transport import Answer
from ..events.interfaces import Context
from ..protocols.grpc_statuses import pause_of, status_of
from ..protocols.tls_files import RenewedTls
from .http_options import RequestOptions

_PORTS = {"http": 80, "https": 443}
#: Headers of HTTP that the library sets, or that have no meaning in a call.
_NOT_SENT = frozenset(("host", "user-agent", "accept", "content-encoding", "content-type"))
#: Seconds between two checks of the deadline, which :meth:`GrpcTransport.hurry` may set during a call.
_CHECK_SECONDS = 0.2
#: Maximum milliseconds between two attempts to connect.
_RECONNECT = 5000


Tls = RenewedTls[grpc.ChannelCredentials | None]


def connections(options: RequestOptions, config: HttpConfig, context: Context) -> tuple[Tls, GrpcTransport]:
    """Return the credentials of channels, and the transport of requests."""
    files = (options.certificate, options.key), file_of_authorities(config)
    tls = RenewedTls(partial(_credentials, options, config), *files, f"sink {context.name}", context)
    return tls, GrpcTransport(options, config, tls, context.clock)


class GrpcTransport:
    """Transport of calls over one channel, which is replaced when TLS files change.

    :param tls: the credentials of the channel.
    """

    def __init__(self, options: RequestOptions, config: HttpConfig, tls: Tls, clock: Clock) -> None:
        self._options, self._config, self._tls, self._clock = options, config, tls, clock
        self._end = NO_DEADLINE
        self._timeout = options.connect_timeout + options.request_timeout
        self._used: grpc.ChannelCredentials | None = None
        self._channel: grpc.Channel | None = None

    def proxies_for(self, base_url: str) -> Mapping[str, str]:
        """Return the proxies of calls, by scheme."""
        return proxies_for(self._config, base_url)

    def request(
        self,
        _method: str,
        base_url: str,
        path: str,
        _params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes,
        proxies: Mapping[str, str],
    ) -> tuple[Answer, Mapping[str, str]]:
        """Make one call; return its outcome as HTTP's answer and headers.

        :param path: gRPC's method.
        """
        method = self._open(base_url, proxies).unary_unary(path)
        call = method.future(body, timeout=self._timeout, metadata=_metadata(headers))
        while not call.done():
            if self._end.expired(self._clock):
                call.cancel()
            with contextlib.suppress(grpc.FutureTimeoutError, grpc.FutureCancelledError, grpc.RpcError):
                call.result(_CHECK_SECONDS)
        code, details = call.code().name, call.details() or ""
        if code == "DEADLINE_EXCEEDED":  # the peer may have vanished; the next call gets a new connection
            self.close()
        if code == "OK":
            return Answer(200, "", call.result()), {}
        pause = pause_of(call.trailing_metadata() or ())
        answer = Answer(status_of(code, details, pause), "", f"{code}: {details}".encode())
        return answer, {} if pause is None else {"Retry-After": str(math.ceil(pause))}

    def hurry(self, end: Deadline) -> None:
        """End all calls by this deadline; called by another thread."""
        self._end = end

    def close(self) -> None:
        """Close the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _open(self, base_url: str, proxies: Mapping[str, str]) -> grpc.Channel:
        """Return the channel; open a new one for new TLS files."""
        current = self._tls.context()
        if self._channel is None or current is not self._used:
            self.close()
            parts, options = urlsplit(base_url), self._arguments(proxy_of(base_url, proxies))
            target = parts.netloc if parts.port else f"{parts.netloc}:{_PORTS[parts.scheme]}"
            packing = grpc.Compression.Gzip if self._options.compress else grpc.Compression.NoCompression
            self._channel = (
                grpc.insecure_channel(target, options, packing)
                if current is None
                else grpc.secure_channel(target, current, options, packing)
            )
            self._used = current
        return self._channel

    def _arguments(self, proxy: str) -> list[tuple[str, int | str]]:
        """Return the library's options of a channel."""
        return [
            ("grpc.max_send_message_length", -1),
            ("grpc.min_reconnect_backoff_ms", round(self._options.connect_timeout * 1000)),
            ("grpc.max_reconnect_backoff_ms", _RECONNECT),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),  # a new channel has a new connection
            ("grpc.http_proxy", proxy) if proxy else ("grpc.enable_http_proxy", 0),
        ]


def _credentials(options: RequestOptions, config: HttpConfig) -> grpc.ChannelCredentials | None:
    """Return the credentials for the server; None without TLS.

    :raises ConfigError: the files cannot be used.
    """
    if options.tls(config) is None:  # it also checks the files
        return None
    certificate = options.certificate
    return grpc.ssl_channel_credentials(
        _bytes(file_of_authorities(config)), _bytes(options.key or certificate), _bytes(certificate)
    )


def _metadata(headers: Mapping[str, str]) -> list[tuple[str, str | bytes]]:
    named = ((name.lower(), value) for name, value in headers.items())
    return [
        (name, value.encode() if name.endswith("-bin") else value) for name, value in named if name not in _NOT_SENT
    ]


def _bytes(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
