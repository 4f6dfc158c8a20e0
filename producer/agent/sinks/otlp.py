"""Sends events as logs of OpenTelemetry, by HTTP (OTLP/HTTP with protobuf), to a collector or whoever else takes them.

See :mod:`..protocols.otlp` for what becomes of an event. What the answer's status means is said as for the sink
``http``, and a request that is refused is halved as there. Records of an accepted request that the receiver says it
rejected are counted and told; it does not say which.
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
    "certificate",
    "key",
    "proxy",
    "refused",
    "batch_size",
    "most_bytes",
)


class OtlpSink:
    """See the module."""

    needs: ClassVar = {"opentelemetry.proto": "otlp"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Where to, as whom, and how much at a time."""

        endpoint: str = option(doc="the URL; without a path /v1/logs")
        resource: Mapping[str, str] = option({}, doc="attributes of the resource, such as service.name")
        batch_size: int = option(5000, least=1, doc="events of a request, at most")
        most_bytes: int = option(2 << 20, least=1, unit="bytes", doc="bytes of bodies and headers, likewise")
        compress: bool = option(True, doc="pack with gzip")
        connect_timeout: float = option(5.0, least=0.001, doc="seconds")
        request_timeout: float = option(30.0, least=0.001, doc="seconds that the server may be silent")
        headers: Mapping[str, str] = option({}, secret=True, doc="further headers of each request")
        user: str | None = option(None, doc="for basic authentication")
        password: str | None = option(None, secret=True, doc="likewise")
        token: str | None = option(None, secret=True, doc="for bearer authentication")
        verify: bool = option(True, doc="check the server's certificate")
        authorities: str | None = option(None, doc="a PEM file of authorities; empty for those of certifi")
        certificate: Path | None = option(None, doc="a PEM file: who we are, for a server that asks")
        key: Path | None = option(None, doc="its key, if that is not in the same file")
        proxy: str | None = option(None, secret=True, doc=PROXY)
        refused: tuple[str, ...] = option(
            ("400", "413", "415", "422"), doc="statuses after which events go to the dead letters, if there are any"
        )

        def __post_init__(self) -> None:
            check_request_options(self.endpoint, self.user, self.token, self.refused)
            check_certificate(self.certificate, self.key)
            proxies_of(self.proxy)

        def missing(self) -> Iterator[ConfigError]:
            """Files that cannot be read."""
            return missing_certificates(self)

        def request_options(self) -> HttpSink.Options:
            """How requests are made."""
            endpoint = self.endpoint if urlsplit(self.endpoint).path.strip("/") else self.endpoint.rstrip("/") + _PATH
            return HttpSink.Options(
                endpoint=endpoint, content_type=_KIND, accept=_KIND, **{name: getattr(self, name) for name in _SAME}
            )

    def __init__(self, options: Options, context: Context) -> None:
        self.most_events, self.most_bytes = options.batch_size, options.most_bytes
        self._http = _Http(options.request_options(), context, _Form(options.resource))

    def write(self, batches: Sequence[EventBatch]) -> None:
        """See :class:`~..interfaces.Sink`, as for those that follow."""
        self._http.write(batches)

    def give_up(self, deadline: Deadline) -> None:
        self._http.give_up(deadline)

    def close(self) -> None:
        self._http.close()


class _Form:
    """Records in protobuf; how large they are is told by their texts."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = resource

    def encoded(self, batch: EventBatch) -> tuple[bytes, Sequence[int]]:
        sizes = (len(body) + sum(map(len, chain(*headers.items()))) for headers, body in batch.events())
        return b"", list(accumulate(sizes))

    def body(self, parts: Sequence[Part]) -> bytes:
        from ..protocols.otlp import request_with  # its packages are an extra

        body: bytes = request_with([part.events() for part in parts], self._resource).SerializeToString()
        return body


class _Http(HttpSink):
    """Requests whose answers may say that some of their records were rejected."""

    def _taken(self, answer: bytes) -> None:
        from ..protocols.otlp import rejected

        count, reason = rejected(answer)
        if count:
            self._counters.add(EventRefusedCount=count)
            _log.error("%s rejected %d of the events, and does not say which: %s", self._url, count, reason)
