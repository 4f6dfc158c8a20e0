"""Send events as OpenTelemetry logs over HTTP (OTLP/HTTP with protobuf), to a collector or another receiver.

:mod:`..protocols.otlp` converts the events. A receiver may accept a request and reject some of its records without
naming them; these are counted and logged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import ClassVar

from ...model.options import option
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .http_options import RequestOptions
from .http_parts import Part
from .http_requests import RequestSink, with_path

_log = get_logger("loghub.agent.sink.otlp")

_KIND = "application/x-protobuf"
_PATH = "/v1/logs"


class OtlpSink(RequestSink):
    """Sink that sends OpenTelemetry logs over HTTP (OTLP/HTTP with protobuf)."""

    needs: ClassVar = {"opentelemetry.proto": "otlp"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """The receiver, authentication and limits."""

        endpoint: str = option(doc=f"URL of the receiver; without a path, {_PATH} is added")
        resource: Mapping[str, str] = option({}, doc="attributes of the resource, such as service.name")
        batch_size: int = option(5000, least=1, doc="maximum number of events in a request")
        most_bytes: int = option(2 << 20, least=1, unit="bytes", doc="maximum bytes of bodies and headers in a request")

    def __init__(self, options: Options, context: Context) -> None:
        headers = {"Content-Type": _KIND, "Accept": _KIND}
        super().__init__(options, context, _Form(options.resource), with_path(options.endpoint, _PATH), headers)

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
