"""Logs of OpenTelemetry over HTTP (OTLP/HTTP): protobuf or JSON, optionally with gzip and TLS.

A request is one batch. 200 means that every required channel has committed it. While a channel is full, memory is
short, or an interceptor fails, the answer is 503 with ``Retry-After``, so the sender tries again. Other paths, for
example of traces, are answered with 404. :mod:`..protocols.otlp` converts the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar
from urllib.parse import urlsplit

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols.reckoning import Reckoning, TooManyEventsError
from .http_requests import Request, RequestError, one_at_a_time
from .posts import PostSource, RequestOptions

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"


class OtlpSource(PostSource):
    """Source of OpenTelemetry logs over HTTP (OTLP/HTTP), in protobuf or JSON."""

    needs: ClassVar = {**PostSource.needs, "opentelemetry.proto": "otlp"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """Address, authentication and limits."""

        port: int = option(4318, least=0, most=65535, doc="port to listen on; 0 for any free one")
        path: str = option("/v1/logs", doc="path of requests")

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, options.port, context)
        self._path = options.path

    def _check(self, request: Request) -> None:
        if urlsplit(request.target).path != self._path:
            raise RequestError(404, f"only {self._path} is served")
        super()._check(request)
        if _kind(request) not in (_PROTOBUF, _JSON):
            raise RequestError(415, f"unknown Content-Type; supported: {_PROTOBUF}, {_JSON}")

    def _batches(self, request: Request, body: bytes) -> Iterable[EventBatch]:
        from ..protocols.otlp import NoLogsError, batches_of_json, batches_of_protobuf

        reckoning = Reckoning(partial(self._limits.hold, request))
        read = batches_of_protobuf if _kind(request) == _PROTOBUF else batches_of_json
        try:
            with one_at_a_time:
                return list(read(body, reckoning))
        except TooManyEventsError as error:
            raise RequestError(413, str(error)) from error
        except NoLogsError as error:
            raise RequestError(400, str(error)) from error

    def _accepted(self, request: Request) -> tuple[str, bytes]:
        """Return an empty response in the format of the request."""
        kind = _kind(request)
        return kind, b"" if kind == _PROTOBUF else b"{}"


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
