"""Prometheus remote write: samples of metrics become logs in the form of a metric store.

Version 2.0 is refused. A request is stored whole or not at all.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from ...text.plural import counted
from ...wire import remote_write
from ...wire.remote_write import EncodingError, SeriesError, SnappyError
from ...wire.schema import LogGroup, WriteRequest
from ..errors import ApiError
from ..limits import Limits
from ..messages import ApiRequest, too_large

_NANOS_PER_SECOND = 1_000_000_000
#: Maximum bytes of a sample's log beside its name and labels: keys, two numbers, and their frames.
_SAMPLE_BYTES = 128


def is_remote_write(request: ApiRequest) -> bool:
    """Return True if a write to a metric store is in Prometheus' format, False for a LogGroup."""
    encoding = request.headers.get("content-encoding", "")
    return request.path.startswith("/prometheus/") and encoding.strip().lower() == "snappy"


def read_samples(request: ApiRequest, body: bytes, limits: Limits) -> bytes:
    """Return the samples of a WriteRequest as an encoded LogGroup; empty if there are none.

    :raises ApiError: ``PostBodyTooLarge``, ``PostBodyUncompressError``, ``PostBodyInvalid``, ``InvalidEncoding``,
        ``InvalidContentType``.
    """
    if "io.prometheus.write.v2" in request.headers.get("content-type", ""):
        raise ApiError("InvalidContentType", "Content-Type is of remote write 2.0: use 1.0 (prometheus.WriteRequest)")
    message = _parse(body, limits)
    group, size = LogGroup(), 0
    try:
        for series in message.timeseries:
            name, labels = (text.encode() for text in remote_write.name_and_labels(series))
            size += len(series.samples) * (len(name) + len(labels) + _SAMPLE_BYTES)
            if size > limits.raw_bytes:
                raise too_large(size, limits.raw_bytes)
            for sample in series.samples:
                _add(group, name, labels, sample)
    except SeriesError as error:
        code = "InvalidEncoding" if isinstance(error, EncodingError) else "PostBodyInvalid"
        raise ApiError(code, str(error)) from error
    return bytes(group.SerializeToString())


def _parse(body: bytes, limits: Limits) -> Any:
    raw, message = _decompressed(body, limits), WriteRequest()
    try:
        message.ParseFromString(raw)
    except DecodeError as error:
        raise ApiError(
            "PostBodyInvalid", f"the body of {counted(len(raw), 'byte')} is no WriteRequest: {error}"
        ) from error
    return message


def _decompressed(body: bytes, limits: Limits) -> bytes:
    """Decompress a snappy block. The size that it declares is checked first: the memory is taken by it."""
    try:
        size = remote_write.unpacked_size(body)
        if size > limits.raw_bytes:
            raise too_large(size, limits.raw_bytes)
        return remote_write.unpack(body)
    except SnappyError as error:
        raise ApiError("PostBodyUncompressError", str(error)) from error


def _add(group: Any, name: bytes, labels: bytes, sample: Any) -> None:
    nanos = remote_write.nanoseconds(name.decode(), sample)
    log = group.Logs.add(Time=nanos // _NANOS_PER_SECOND)
    values = name, labels, str(nanos).encode(), remote_write.number(sample.value).encode()
    keys = remote_write.NAME, remote_write.LABELS, remote_write.NANOS, remote_write.VALUE
    for key, value in zip(keys, values, strict=True):
        log.Contents.add(Key=key, Value=value)
