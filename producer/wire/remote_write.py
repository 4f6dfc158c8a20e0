"""Prometheus remote write 1.0, and the format of its samples in a metric store.

A sample becomes a log of four fields: ``__name__``, ``__labels__`` (``key#$#value|key#$#value``, sorted by key),
``__time_nano__`` and ``__value__``. Metadata and exemplars are skipped. Native histograms are refused, since they would
be lost. Prometheus' marker of a stale series becomes ``NaN``, which no comparison selects.

Example: ``up{job="api"} 1`` at 1700000000123 ms has the fields ``up``, ``job#$#api``, ``1700000000123000000`` and
``1``.

Specification: prometheus.io, Prometheus Remote-Write 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cramjam import DecompressionError, snappy

NAME, LABELS, NANOS, VALUE = "__name__", "__labels__", "__time_nano__", "__value__"
_SEPARATOR, _BETWEEN = "#$#", "|"
_NANOS_PER_MS = 1_000_000
_MAX_MS = (1 << 32) * 1000 - 1
_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


class SnappyError(ValueError):
    """Raised for a body that is not a valid snappy block."""


class SeriesError(ValueError):
    """Raised for a time series, or a sample, that a metric store cannot store."""


class EncodingError(SeriesError):
    """Raised for a label that is not UTF-8."""


def unpacked_size(block: bytes) -> int:
    """Return the size that a snappy block declares, which :func:`unpack` allocates."""
    try:
        return int(snappy.decompress_raw_len(block))
    except DecompressionError as error:
        raise SnappyError(f"the body is not a valid snappy block: {error}") from error


def unpack(block: bytes) -> bytes:
    """Decompress a snappy block."""
    try:
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise SnappyError(f"the body is not a valid snappy block: {error}") from error


def name_and_labels(series: Any) -> tuple[str, str]:
    """Return the name of a time series, and its labels as one text.

    :raises SeriesError: it has no name, a label twice or with a separator, or native histograms.
    """
    labels = list(_decoded(series))
    pairs = dict(labels)
    name = pairs.pop(NAME, "")
    if not name:
        raise SeriesError(f"a time series has no label {NAME}: {str(pairs)[:200]}")
    if len(labels) > len(pairs) + 1:
        raise SeriesError(f"{name[:200]} has a label twice: {str(labels)[:200]}")
    if any(mark in text for pair in pairs.items() for text in pair for mark in (_SEPARATOR, _BETWEEN)):
        raise SeriesError(
            f"{name[:200]} has {_BETWEEN} or {_SEPARATOR} in a label, which separate labels in a metric store; replace"
            f" them by write_relabel_configs: {str(pairs)[:200]}"
        )
    if series.histograms:
        raise SeriesError(f"{name[:200]} has native histograms, which are not stored: disable them")
    return name, _BETWEEN.join(f"{key}{_SEPARATOR}{value}" for key, value in sorted(pairs.items()))


def _decoded(series: Any) -> Iterator[tuple[str, str]]:
    for label in series.labels:
        try:
            yield label.name.decode(), label.value.decode()
        except UnicodeDecodeError as error:
            raise EncodingError(f"label {label.name[:64]!r} is not UTF-8") from error


def nanoseconds(name: str, sample: Any) -> int:
    """Return the time of a sample.

    :raises SeriesError: the time is outside the range of a log's time.
    """
    if not 0 <= sample.timestamp <= _MAX_MS:
        raise SeriesError(
            f"a sample of {name[:200]} is at {sample.timestamp} ms: the time must be from 0 to {_MAX_MS} ms"
        )
    return int(sample.timestamp) * _NANOS_PER_MS


def number(value: float) -> str:
    """Format a number as Prometheus does: ``1``, ``0.5``, ``1e-07``, ``NaN``, ``+Inf``."""
    text = repr(value)
    return _SPECIAL.get(text, text.removesuffix(".0"))
