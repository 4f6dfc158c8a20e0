"""Sends events as logs of OpenTelemetry, by HTTP (OTLP/HTTP with protobuf), to a collector or whoever else takes them.

See :mod:`..protocols.otlp` for what becomes of an event. What the answer's status means is said as for the sink
``http``. Records of an accepted request that the receiver says it rejected are counted and told; it does not say which.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from ..batch import EventBatch
from ..interfaces import Context, RefusedError
from ..options import option
from .http import HttpSink, check_request_options

_log = logging.getLogger("producer.agent.sink.otlp")

_KIND = "application/x-protobuf"
_PATH = "/v1/logs"
#: Options that mean what they mean for the sink http.
_SAME = (
    "compress",
    "connect_timeout",
    "request_timeout",
    "headers",
    "user",
    "password",
    "token",
    "verify",
    "authorities",
    "refused",
)


class OtlpSink:
    """See the module."""

    needs: ClassVar = {"opentelemetry.proto": "otlp"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Where to, as whom, and how much at a time."""

        endpoint: str = option(doc="the URL; without a path /v1/logs")
        resource: Mapping[str, str] = option({}, doc="attributes of the resource, such as service.name")
        batch_size: int = option(5000, least=1, doc="events delivered at once, at most")
        most_bytes: int = option(2 << 20, least=1, unit="bytes", doc="bytes of bodies, likewise")
        compress: bool = option(True, doc="pack with gzip")
        connect_timeout: float = option(5.0, least=0.001, doc="seconds")
        request_timeout: float = option(30.0, least=0.001, doc="seconds that the server may be silent")
        headers: Mapping[str, str] = option({}, secret=True, doc="further headers of each request")
        user: str | None = option(None, doc="for basic authentication")
        password: str | None = option(None, secret=True, doc="likewise")
        token: str | None = option(None, secret=True, doc="for bearer authentication")
        verify: bool = option(True, doc="check the server's certificate")
        authorities: str | None = option(None, doc="a PEM file of authorities; empty for those of certifi")
        refused: tuple[str, ...] = option(
            ("400", "413", "415", "422"), doc="statuses after which events go to the dead letters, if there are any"
        )

        def __post_init__(self) -> None:
            check_request_options(self.endpoint, self.user, self.token, self.refused)

        def request_options(self) -> HttpSink.Options:
            """How requests are made."""
            endpoint = self.endpoint if urlsplit(self.endpoint).path.strip("/") else self.endpoint.rstrip("/") + _PATH
            return HttpSink.Options(
                endpoint=endpoint, content_type=_KIND, accept=_KIND, **{name: getattr(self, name) for name in _SAME}
            )

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._counters = options, context.counters
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        self._http = HttpSink(options.request_options(), context)

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~..interfaces.Sink`."""
        from ..protocols.otlp import rejected, request_with  # noqa: PLC0415  # its packages are an extra

        if not any(batch.count for batch in batches):
            return
        self._http.check_pause()
        body: bytes = request_with(batches, self._options.resource).SerializeToString()
        answer = self._http.post(body)
        if answer is None:
            raise RefusedError(self._http.refusal, batches)
        count, reason = rejected(answer.body)
        if count:
            self._counters.add(EventRefusedCount=count)
            _log.error(
                "%s rejected %d of the events, and does not say which: %s", self._options.endpoint, count, reason
            )

    def close(self) -> None:
        """See :class:`~..interfaces.Sink`."""
        self._http.close()
