"""Formats dates, times and timestamps as ``isoformat`` does.

Arrow formats the digits. Python returns the offset of a zone, once per minute that occurs in a column, because Arrow
and Python may have different zone data. Before 1973, when some offsets changed at odd seconds, it is once per second.
Timestamps in nanoseconds are formatted in the same way. ``to_pylist`` would return values of pandas for them, which
differ in the seconds of old offsets and in daylight saving time after 2037.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .values import Numbers, UnsendableError, as_binary, integers, text_kind, valid_of, with_nulls

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

# The range of seconds that Python can express.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_DAY = 86_400
# Longer than any timestamp.
_LONGEST = 40
_1973 = 94_694_400
_UTC = frozenset({"UTC", "Etc/UTC", "Z", "+00:00"})


def texts_of_timestamps(array: pa.Array) -> pa.Array:
    """Format as ``2026-01-31T12:00:00.000001+01:00``, with a fraction of six digits, nine if needed, or none."""
    valid = valid_of(array)
    seconds, fraction = np.divmod(integers(array, pa.int64()), PER_SECOND[array.type.unit])
    nanos = fraction * (PER_SECOND["ns"] // PER_SECOND[array.type.unit])
    _check(seconds, valid)
    if array.type.tz is None:
        return _iso(seconds, nanos, valid)
    if array.type.tz in _UTC:
        return _ended(_iso(seconds, nanos, valid), pa.scalar(b"+00:00"))
    offsets, endings = _offsets(seconds, array.type.tz, valid)
    _check(seconds + offsets, valid)
    return _ended(_iso(seconds + offsets, nanos, valid), endings)


def texts_of_dates(array: pa.Array) -> pa.Array:
    """Format as ``2026-01-31``."""
    valid = valid_of(array)
    if pa.types.is_date32(array.type):
        days = integers(array, pa.int32()).astype(np.int64)
    else:
        days = integers(array, pa.int64()) // (_DAY * 1000)
    _check(days * _DAY, valid)
    return as_binary(with_nulls(days.astype(np.int32), valid, pa.date32()).cast(text_kind(len(days), _LONGEST)))


def texts_of_times(array: pa.Array) -> pa.Array:
    """Format as ``12:00:00.000001``; nanoseconds are cut off, as Python has none."""
    wide = pa.types.is_time64(array.type)
    ticks = integers(array, pa.int64() if wide else pa.int32()).astype(np.int64)
    seconds, fraction = np.divmod(ticks, PER_SECOND[array.type.unit])
    micros = fraction * PER_SECOND["us"] // PER_SECOND[array.type.unit]
    texts = as_binary(pc.utf8_slice_codeunits(_cast(seconds % _DAY, valid_of(array), "s"), 11))
    if not micros.any():
        return texts
    exact = as_binary(
        pc.utf8_slice_codeunits(_cast(seconds % _DAY * PER_SECOND["us"] + micros, valid_of(array), "us"), 11)
    )
    return pc.if_else(pa.array(micros == 0), texts, exact)


def _check(seconds: Numbers, valid: Numbers | None) -> None:
    wrong = (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)
    if valid is not None:
        wrong &= valid
    if wrong.any():
        raise UnsendableError(int(np.argmax(wrong)), "it is outside the years 1 to 9999, which Python can express")


def _iso(seconds: Numbers, nanos: Numbers, valid: Numbers | None) -> pa.Array:
    """Format date and time in UTC, without a zone."""
    exact = nanos != 0
    if not exact.any():
        return _with_t(_cast(seconds, valid, "s"))
    finer = nanos % 1000 != 0
    texts = _cast(seconds * PER_SECOND["us"] + nanos // 1000, valid, "us")
    if not exact.all():
        texts = pc.if_else(pa.array(exact), texts, _cast(seconds, valid, "s"))
    if finer.any():
        whole = np.where(finer, seconds, 0)
        texts = pc.if_else(pa.array(finer), _cast(whole * PER_SECOND["ns"] + nanos, valid, "ns"), texts)
    return _with_t(texts)


def _cast(ticks: Numbers, valid: Numbers | None, unit: str) -> pa.Array:
    return with_nulls(ticks, valid, pa.timestamp(unit)).cast(text_kind(len(ticks), _LONGEST))


def _with_t(texts: pa.Array) -> pa.Array:
    return pc.binary_replace_slice(as_binary(texts), 10, 11, b"T")


def _ended(texts: pa.Array, endings: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(texts, endings, b"")


def _offsets(seconds: Numbers, zone: str, valid: Numbers | None) -> tuple[Numbers, pa.Array]:
    """Return the offset of a zone at each moment, in seconds and as text."""
    if valid is not None:
        seconds = np.where(valid, seconds, 0)
    moments = pa.array(np.where(seconds < _1973, seconds, seconds // 60 * 60)).dictionary_encode()
    which = moments.indices.to_numpy()
    found = []
    for code, moment in enumerate(moments.dictionary.to_pylist()):
        try:
            found.append(pa.scalar(moment, pa.timestamp("s", zone)).as_py().utcoffset())
        except (ValueError, OverflowError) as error:
            position = int(np.argmax(which == code))
            raise UnsendableError(position, f"Python cannot express it in zone {zone}: {error}") from error
    offsets = np.array([offset // timedelta(seconds=1) for offset in found], np.int64)
    return offsets[which], pa.array(map(_ending, found), pa.binary()).take(moments.indices)


def _ending(offset: timedelta) -> bytes:
    """Format an offset as ``isoformat`` does."""
    sign, rest = ("-", -offset) if offset < timedelta() else ("+", offset)
    minutes, seconds = divmod(int(rest.total_seconds()), 60)
    return f"{sign}{minutes // 60:02}:{minutes % 60:02}{f':{seconds:02}' if seconds else ''}".encode()
