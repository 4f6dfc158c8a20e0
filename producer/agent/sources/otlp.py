"""Receive OpenTelemetry's logs (OTLP), and the traces and metrics that ``signals`` names, as events.

:mod:`..protocols.otlp` converts the records.

* ``http``: protobuf or JSON, optionally compressed. 200 means that every required channel has committed the request.
  While a channel is full, memory is short, or an interceptor fails, the answer is 503 with ``Retry-After``, so the
  sender tries again. Other paths, also those of signals that are not accepted, are answered with 404.
* ``grpc``: :mod:`.otlp_grpc` describes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from ...runtime.clock import Stop
from ..events.batch import EventBatch
from ..events.interfaces import Context, Outlet
from .http_requests import Request, RequestError
from .otlp_requests import JSON, PROTOBUF, OtlpOptions, batches_of_body
from .posts import PostSource


class OtlpSource:
    """Source of OpenTelemetry logs over HTTP (OTLP/HTTP, protobuf or JSON) or gRPC (OTLP/gRPC)."""

    needs: ClassVar = {**PostSource.needs, "opentelemetry.proto": "otlp"}
    endless = True

    Options = OtlpOptions

    def __init__(self, options: OtlpOptions, context: Context) -> None:
        self._source = _transport(options, context)
        self.addresses, self.listening = self._source.addresses, self._source.listening

    def run(self, outlet: Outlet, stop: Stop) -> None:
        self._source.run(outlet, stop)


def _transport(options: OtlpOptions, context: Context) -> Any:
    if options.transport == "http":
        return _Http(options, context)
    from .otlp_grpc import OtlpGrpc  # an extra

    return OtlpGrpc(options, context)


class _Http(PostSource):
    """Server of requests in protobuf or JSON."""

    def __init__(self, options: OtlpOptions, context: Context) -> None:
        super().__init__(options, options.port or 0, context, paths=options.paths())
        self._signals = options.paths()

    def _check(self, request: Request) -> None:
        super()._check(request)
        if _kind(request) not in (PROTOBUF, JSON):
            raise RequestError(415, f"unknown Content-Type; supported: {PROTOBUF}, {JSON}")

    def _batches(self, request: Request, body: bytes) -> Iterable[EventBatch]:
        signal = self._signals[request.path]
        return batches_of_body(self._limits, request, _kind(request), signal, body)

    def _accepted(self, request: Request) -> tuple[str, bytes]:
        """Return an empty response in the format of the request."""
        kind = _kind(request)
        return kind, b"" if kind == PROTOBUF else b"{}"


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
