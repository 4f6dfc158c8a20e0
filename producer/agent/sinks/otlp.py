"""Send events as OpenTelemetry logs over HTTP (protobuf) or gRPC, to a collector or another receiver.

:mod:`..protocols.otlp` converts the events, and :mod:`.grpc_calls` makes calls of gRPC. A receiver may accept a request
and reject some of its records without naming them; these are counted and logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ...model.config import HttpConfig
from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols.grpc_statuses import OF_LOGS, check_grpc
from .http_options import RequestOptions
from .http_parts import Part
from .http_requests import RequestSink, with_path

_log = get_logger("loghub.agent.sink.otlp")

_KIND = "application/x-protobuf"
_PATH = "/v1/logs"


class OtlpSink(RequestSink):
    """Sink that sends OpenTelemetry logs over HTTP (OTLP/HTTP with protobuf) or gRPC (OTLP/gRPC)."""

    needs: ClassVar = {"opentelemetry.proto": "otlp"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """The receiver, authentication and limits."""

        endpoint: str = option(doc=f"URL of the receiver; http: without a path, {_PATH} is added")
        transport: str = option("http", choices=("http", "grpc"), doc="how requests are sent; grpc needs otlp-grpc")
        resource: Mapping[str, str] = option({}, doc="attributes of the resource, such as service.name")
        batch_size: int = option(5000, least=1, doc="maximum number of events in a request")
        most_bytes: int = option(2 << 20, least=1, unit="bytes", doc="maximum bytes of bodies and headers in a request")

        def __post_init__(self) -> None:
            RequestOptions.__post_init__(self)
            if self.transport == "grpc":
                check_grpc()
                self._check_grpc_endpoint()

        def _check_grpc_endpoint(self) -> None:
            parts = urlsplit(self.endpoint)
            if parts.path.strip("/") or parts.query:
                raise ConfigError("endpoint", "must have no path with transport = grpc", self.endpoint)
            if not self.verify:
                raise ConfigError("verify", "must be true with transport = grpc: set authorities", self.verify)
            if self.authorities and Path(self.authorities).is_dir():
                raise ConfigError("authorities", "must be a file with transport = grpc", self.authorities)

    def __init__(self, options: Options, context: Context) -> None:
        is_grpc = options.transport == "grpc"
        headers = {} if is_grpc else {"Content-Type": _KIND, "Accept": _KIND}
        url = with_path(options.endpoint, OF_LOGS if is_grpc else _PATH)
        self.compresses = not is_grpc
        super().__init__(options, context, _Form(options.resource), url, headers)

    def _connections(self, options: Any, config: HttpConfig, context: Context) -> tuple[Any, Any]:
        if options.transport == "http":
            return super()._connections(options, config, context)
        from .grpc_calls import connections  # an extra

        return connections(options, config, context)

    def _outcome(self, answer: bytes, count: int) -> None:
        from ..protocols.otlp import rejected  # an extra

        rejections, reason = rejected(answer)
        if rejections:
            self._counters.add(EventRefusedCount=rejections)
            _log.error("%s rejected %d of the events without naming them: %s", self._url, rejections, reason)


class _Form:
    """Encoding of requests in protobuf; the size of an event is estimated by its texts."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = resource

    def encoded(self, batch: EventBatch) -> tuple[bytes, Sequence[int]]:
        sizes = (len(body) + sum(map(len, chain(*headers.items()))) for headers, body in batch.events())
        return b"", list(accumulate(sizes))

    def body(self, parts: Sequence[Part]) -> bytes:
        from ..protocols.otlp import request_with  # an extra

        body: bytes = request_with([part.events() for part in parts], self._resource).SerializeToString()
        return body
