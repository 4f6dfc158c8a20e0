"""Send events as OpenTelemetry logs over HTTP (OTLP/HTTP with protobuf), to a collector or another receiver.

:mod:`..protocols.otlp` converts the events. The status of an answer is handled as in the sink ``http``, and a refused
request is halved as there. A receiver may accept a request and reject some of its records without naming them; these
are counted and logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.clock import Deadline
from ...runtime.loggers import get_logger
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols.proxies import PROXY, proxies_of
from .http import HttpSink, check_certificate, check_request_options, missing_certificates
from .http_parts import Part

_log = get_logger("loghub.agent.sink.otlp")

_KIND = "application/x-protobuf"
_PATH = "/v1/logs"
#: Options with the same meaning as in the sink http.
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
    "certificate",
    "key",
    "proxy",
    "refused",
    "batch_size",
    "most_bytes",
)


class OtlpSink:
    """Sink that sends OpenTelemetry logs over HTTP (OTLP/HTTP with protobuf)."""

    needs: ClassVar = {"opentelemetry.proto": "otlp"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """The receiver, authentication and limits."""

        endpoint: str = option(doc="URL of the receiver; without a path, /v1/logs is added")
        resource: Mapping[str, str] = option({}, doc="attributes of the resource, such as service.name")
        batch_size: int = option(5000, least=1, doc="maximum number of events in a request")
        most_bytes: int = option(2 << 20, least=1, unit="bytes", doc="maximum bytes of bodies and headers in a request")
        compress: bool = option(True, doc="compress with gzip")
        connect_timeout: float = option(5.0, least=0.001, doc="seconds to connect")
        request_timeout: float = option(30.0, least=0.001, doc="seconds that the server may be silent")
        headers: Mapping[str, str] = option({}, secret=True, doc="further headers of each request")
        user: str | None = option(None, doc="user for basic authentication")
        password: str | None = option(None, secret=True, doc="password for basic authentication")
        token: str | None = option(None, secret=True, doc="token for bearer authentication")
        verify: bool = option(True, doc="check the server's certificate")
        authorities: str | None = option(None, doc="PEM file of trusted authorities; empty for certifi's")
        certificate: Path | None = option(None, doc="PEM file with a client certificate")
        key: Path | None = option(None, doc="PEM file with its key, if it is not in the same file")
        proxy: str | None = option(None, secret=True, doc=PROXY)
        refused: tuple[str, ...] = option(
            ("400", "413", "415", "422"), doc="statuses that refuse events permanently: they go to the dead letters"
        )

        def __post_init__(self) -> None:
            check_request_options(self.endpoint, self.user, self.token, self.refused)
            check_certificate(self.certificate, self.key)
            proxies_of(self.proxy)

        def missing(self) -> Iterator[ConfigError]:
            """Yield an error for each file that cannot be used."""
            return missing_certificates(self)

        def request_options(self) -> HttpSink.Options:
            """Return the options of the requests."""
            endpoint = self.endpoint if urlsplit(self.endpoint).path.strip("/") else self.endpoint.rstrip("/") + _PATH
            return HttpSink.Options(
                endpoint=endpoint, content_type=_KIND, accept=_KIND, **{name: getattr(self, name) for name in _SAME}
            )

    def __init__(self, options: Options, context: Context) -> None:
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        self._http = _Http(options.request_options(), context, _Form(options.resource))

    def write(self, batches: Sequence[EventBatch]) -> None:
        self._http.write(batches)

    def give_up(self, deadline: Deadline) -> None:
        self._http.give_up(deadline)

    def close(self) -> None:
        self._http.close()


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


class _Http(HttpSink):
    """Sender of requests whose answers may report rejected records."""

    def _taken(self, answer: bytes) -> None:
        from ..protocols.otlp import rejected

        count, reason = rejected(answer)
        if count:
            self._counters.add(EventRefusedCount=count)
            _log.error("%s rejected %d of the events without naming them: %s", self._url, count, reason)
