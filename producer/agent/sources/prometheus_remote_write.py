"""Receive Prometheus' remote write 1.0; each sample becomes an event in the format of a metric store.

A request is one batch. 204 means that every required channel has committed it. While a channel is full, memory is
short, or an interceptor fails, the answer is 503 with ``Retry-After``, so the sender tries again. Series that a metric
store cannot store are refused: the other samples are committed, and the answer is 400, which senders do not retry.
:mod:`..protocols.remote_write` converts the samples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ...model.options import option
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..protocols.reckoning import Reckoning
from .http_requests import Request, RequestError, one_at_a_time, refusing
from .posts import PostSource, RequestOptions

_log = get_logger("loghub.agent.source.prometheus_remote_write")

_PROTOBUF, _MESSAGE = "application/x-protobuf", "prometheus.WriteRequest"


class PrometheusRemoteWriteSource(PostSource):
    """Source of the samples that Prometheus and others send by remote write 1.0."""

    needs: ClassVar = {**PostSource.needs, "cramjam": "remote-write", "google.protobuf": "remote-write"}
    accepted: ClassVar = 204

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(RequestOptions):
        """Address, authentication and limits."""

        port: int = option(9201, least=0, most=65535, doc="port to listen on; 0 for any free one")
        path: str = option("/api/v1/write", doc="path of requests")

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(options, options.port, context, paths=(options.path,))
        self._most = options.max_body
        self._name, self._counters, self._repeated = context.name, context.counters, RateLimitedLog(context.clock)

    def _check(self, request: Request) -> None:
        super()._check(request)
        kind, _, message = request.headers.get("content-type", "").replace(" ", "").partition(";")
        if kind.lower() != _PROTOBUF or message not in ("", f"proto={_MESSAGE}"):
            raise RequestError(415, f"only remote write 1.0 is accepted: {_PROTOBUF};proto={_MESSAGE}")
        if request.headers.get("content-encoding", "").lower() != "snappy":
            raise RequestError(415, "only Content-Encoding: snappy is accepted")
        request.headers = {**request.headers, "content-encoding": "identity"}  # _unpacked decompresses it as a whole

    def _batches(self, request: Request, body: bytes) -> Iterable[EventBatch]:
        from ...wire.remote_write import SnappyError  # cramjam and protobuf are extras
        from ..protocols.remote_write import RemoteWriteError, Samples

        samples = Samples(Reckoning(partial(self._limits.hold, request)))
        with refusing(RemoteWriteError, SnappyError), one_at_a_time:
            batch = samples.read(self._unpacked(request, body))
        return self._committed(batch, samples.refused, samples.reason)

    def _unpacked(self, request: Request, body: bytes) -> bytes:
        from ...wire.remote_write import unpack, unpacked_size

        size = unpacked_size(body)
        if size > self._most:
            raise RequestError(413, f"the body has {size} bytes, unpacked: more than {self._most} (max_body)")
        self._limits.hold(request, size)
        return unpack(body)

    def _committed(self, batch: EventBatch, refused: int, reason: str) -> Iterator[EventBatch]:
        """Yield the accepted samples; once they are committed, raise an error for the refused ones.

        :raises RequestError: some were refused.
        """
        yield batch
        if not refused:
            return
        self._counters.add(EventReadFail=refused)
        text = f"{refused} time series or samples are refused, the others are stored: {reason}"
        if (more := self._repeated.due("refused", 1)) is not None:
            _log.warning("source %s: %s (%d requests more since the last line about it)", self._name, text, more)
        raise RequestError(400, text)
