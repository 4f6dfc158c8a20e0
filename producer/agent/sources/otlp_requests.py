"""Options of the source ``otlp``, and parsing of its requests, for both transports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...model.errors import ConfigError
from ...model.options import check_unset, option
from ..events.batch import EventBatch
from ..protocols.grpc_statuses import check_grpc
from ..protocols.reckoning import Reckoning
from .http_requests import Limits, Request, one_at_a_time, refusing
from .posts import RequestOptions

PROTOBUF, JSON = "application/x-protobuf", "application/json"
#: OpenTelemetry's ports.
_PORTS: Mapping[str, int] = {"http": 4318, "grpc": 4317}
_SIGNALS = ("logs", "traces", "metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpOptions(RequestOptions):
    """Transport, address, authentication and limits."""

    transport: str = option("http", choices=("http", "grpc"), doc="how requests are sent; grpc needs otlp-grpc")
    port: int | None = option(
        None, least=0, most=65535, doc="port to listen on; 0 for any free one; empty for 4318, with grpc 4317"
    )
    path: str = option(
        "/v1/logs", doc="http: path of requests with logs; those of others are /v1/traces and /v1/metrics"
    )
    signals: tuple[str, ...] = option(
        ("logs",), doc="accepted signals: logs, traces, metrics; each span or data point becomes an event"
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
            check_unset(self, ("path", "max_connections_per_peer"), "needs transport = http")

    def paths(self) -> Mapping[str, str]:
        """Return the signal of each path of HTTP that is served."""
        return {self.path if signal == "logs" else f"/v1/{signal}": signal for signal in self.signals}


def batches_of_body(limits: Limits, request: Request, kind: str, signal: str, body: bytes) -> Sequence[EventBatch]:
    """Return the events of a request.

    :param kind: the type of the body.
    :raises RequestError: the body is invalid, or no memory is free for its events.
    """
    from ..protocols.otlp import OtlpError, batches_of_json, batches_of_protobuf  # an extra

    reckoning = Reckoning(partial(limits.hold, request))
    read = batches_of_protobuf if kind == PROTOBUF else batches_of_json
    with refusing(OtlpError), one_at_a_time:
        return list(read(body, reckoning, signal))
