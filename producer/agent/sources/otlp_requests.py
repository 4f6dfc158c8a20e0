"""The options of the source ``otlp``, and the parsing of its requests, for both transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...model.errors import ConfigError
from ...model.options import option
from ..events.batch import EventBatch
from ..protocols.grpc_statuses import check_grpc
from ..protocols.reckoning import Reckoning, TooManyEventsError
from .http_requests import Limits, Request, RequestError, one_at_a_time
from .posts import RequestOptions

PROTOBUF, JSON = "application/x-protobuf", "application/json"
#: OpenTelemetry's ports.
_PORTS: Mapping[str, int] = {"http": 4318, "grpc": 4317}
_SIGNALS = ("logs", "traces", "metrics")
_PATH = "/v1/logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpOptions(RequestOptions):
    """Transport, address, authentication and limits."""

    transport: str = option("http", choices=("http", "grpc"), doc="how requests are sent; grpc needs otlp-grpc")
    port: int | None = option(
        None, least=0, most=65535, doc="port to listen on; 0 for any free one; empty for 4318, with grpc 4317"
    )
    path: str = option(_PATH, doc="http: path of requests with logs; those of others are /v1/traces and /v1/metrics")
    signals: tuple[str, ...] = option(
        ("logs",), doc="what is accepted: logs, traces, metrics; a span or a data point is an event"
    )

    def __post_init__(self) -> None:
        if self.port is None:
            object.__setattr__(self, "port", _PORTS[self.transport])
        RequestOptions.__post_init__(self)
        if not self.signals or not set(self.signals) <= set(_SIGNALS):
            raise ConfigError("signals", f"must name some of {', '.join(_SIGNALS)}", self.signals)
        if len(self.paths()) < len(set(self.signals)):
            raise ConfigError("path", "must not be that of traces or metrics", self.path)
        if self.transport == "grpc":
            check_grpc()
            self._check_http_only()

    def _check_http_only(self) -> None:
        if self.path != _PATH:
            raise ConfigError("path", "needs transport = http", self.path)
        if self.max_connections_per_peer is not None:
            raise ConfigError("max_connections_per_peer", "needs transport = http", self.max_connections_per_peer)

    def paths(self) -> Mapping[str, str]:
        """Return the signal of each path of HTTP that is served."""
        return {self.path if signal == "logs" else f"/v1/{signal}": signal for signal in self.signals}


def batches_of_body(limits: Limits, request: Request, kind: str, signal: str, body: bytes) -> Sequence[EventBatch]:
    """Return the events of a request.

    :param kind: the type of the body.
    :raises RequestError: the body is invalid, or no memory is free for its events.
    """
    from ..protocols.otlp import NoLogsError, batches_of_json, batches_of_protobuf  # an extra

    reckoning = Reckoning(partial(limits.hold, request))
    read = batches_of_protobuf if kind == PROTOBUF else batches_of_json
    try:
        with one_at_a_time:
            return list(read(body, reckoning, signal))
    except TooManyEventsError as error:
        raise RequestError(413, str(error)) from error
    except NoLogsError as error:
        raise RequestError(400, str(error)) from error
