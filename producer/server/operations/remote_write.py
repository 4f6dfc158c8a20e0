"""Prometheus remote write: samples of metrics become logs in the form of a metric store.

A sample is a log of four fields: ``__name__``, ``__labels__`` (``key#$#value|key#$#value``, sorted by key),
``__time_nano__`` and ``__value__``. Metadata and exemplars are skipped. Native histograms and version 2.0 are refused,
since they would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cramjam import DecompressionError, snappy
from google.protobuf.message import DecodeError

from ...text.plural import counted
from ...wire.schema import LogGroup, WriteRequest
from ..errors import ApiError
from ..limits import Limits
from ..messages import ApiRequest, too_large

_NAME = "__name__"
_NANOS_PER_MS = 1_000_000
_MAX_MS = (1 << 32) * 1000 - 1
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
    for series in message.timeseries:
        name, labels = _labels(series)
        size += len(series.samples) * (len(name) + len(labels) + _SAMPLE_BYTES)
        if size > limits.raw_bytes:
            raise too_large(size, limits.raw_bytes)
        for sample in series.samples:
            _add(group, name, labels, sample)
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
        size = snappy.decompress_raw_len(body)
        if size > limits.raw_bytes:
            raise too_large(size, limits.raw_bytes)
        return bytes(snappy.decompress_raw(body))
    except DecompressionError as error:
        raise ApiError("PostBodyUncompressError", f"the body is not a valid snappy block: {error}") from error


def _labels(series: Any) -> tuple[bytes, bytes]:
    """Return the name of a series, and its labels as one text."""
    pairs = dict(_checked(series))
    name = pairs.pop(_NAME, "")
    if not name:
        raise ApiError("PostBodyInvalid", f"a time series has no label {_NAME}: {str(pairs)[:200]}")
    if series.histograms:
        raise ApiError("PostBodyInvalid", f"{name[:200]} has native histograms, which are not stored: disable them")
    return name.encode(), "|".join(f"{key}#$#{value}" for key, value in sorted(pairs.items())).encode()


def _checked(series: Any) -> Iterator[tuple[str, str]]:
    for label in series.labels:
        try:
            yield label.name.decode(), label.value.decode()
        except UnicodeDecodeError as error:
            raise ApiError("InvalidEncoding", f"label {label.name[:64]!r} is not UTF-8") from error


def _add(group: Any, name: bytes, labels: bytes, sample: Any) -> None:
    if not 0 <= sample.timestamp <= _MAX_MS:
        raise ApiError(
            "PostBodyInvalid",
            f"a sample of {name.decode()[:200]} is at {sample.timestamp} ms: the time must be from 0 to {_MAX_MS} ms",
        )
    log = group.Logs.add(Time=sample.timestamp // 1000)
    nanos = str(sample.timestamp * _NANOS_PER_MS).encode()
    fields = {_NAME: name, "__labels__": labels, "__time_nano__": nanos, "__value__": _number(sample.value).encode()}
    for key, value in fields.items():
        log.Contents.add(Key=key, Value=value)


def _number(value: float) -> str:
    """Format a number as Prometheus does: ``1``, ``0.5``, ``1e-07``, ``NaN``, ``+Inf``."""
    special = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    text = repr(value)
    return special.get(text, text.removesuffix(".0"))
