"""Arrow arrays of every type, for Hypothesis, and their rows as ``send`` takes them."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from producer.model.records import LogItem
from producer.wire.log_group import encode_log

NOW = 1_700_000_000
ZONES = ["UTC", "+05:30", "-00:01", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Africa/Monrovia"]
# The range that Python can express, minus a day for zones, seconds since 1970.
FIRST, LAST = -62_135_510_400, 253_402_214_399
TICKS = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}


# A strategy takes longer to make than to draw from.
_kept = lru_cache(maxsize=None)


def _numbers(kind: pa.DataType) -> st.SearchStrategy[Any]:
    low, high = (0, 2**kind.bit_width - 1) if str(kind)[0] == "u" else (-(2 ** (kind.bit_width - 1)), 0)
    return st.integers(low, high or 2 ** (kind.bit_width - 1) - 1)


def _moments(unit: str, zone: str | None) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    first, last = FIRST, LAST
    if unit == "ns":
        first, last = -(2**63) // 10**9 + 86_401, 2**63 // 10**9 - 86_401
        # These values are made by pandas, which lacks seconds of old offsets and daylight saving time after 2037.
        if zone:
            first, last = 100_000_000, 2_145_000_000
    per = TICKS[unit]
    whole = st.integers(first, last).map(lambda seconds: seconds * per)
    recent = st.integers(100_000_000 * per, 2_145_000_000 * per)
    return pa.timestamp(unit, zone), st.integers(first * per, last * per) | whole | recent


def _floats(kind: pa.DataType) -> st.SearchStrategy[Any]:
    width = kind.bit_width
    ordinary = st.integers(-(10**6), 10**6).map(lambda number: number / 64)
    return st.floats(width=width) | (ordinary.filter(lambda number: abs(number) < 60_000) if width == 16 else ordinary)


def _decimals(kind: pa.DataType) -> st.SearchStrategy[Any]:
    most = 10**kind.precision - 1
    return st.integers(-most, most)


_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_SMALL_DECIMALS = [(getattr(pa, "decimal32", None), (9, 2)), (getattr(pa, "decimal64", None), (18, 18))]
_DECIMALS = [
    # Newer than the oldest supported pyarrow.
    *(decimal(*size) for decimal, size in _SMALL_DECIMALS if decimal is not None),
    pa.decimal128(38, 0),
    pa.decimal128(20, 9),
    pa.decimal128(5, -3),
    pa.decimal256(76, 40),
]
# Types whose arrays are made from integers.
_OF_INTEGERS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *(_moments(unit, zone) for unit in TICKS for zone in (None, *ZONES)),
    (pa.date32(), st.integers(FIRST // 86_400, LAST // 86_400)),
    (pa.date64(), st.integers(FIRST // 86_400, LAST // 86_400).map(lambda days: days * 86_400_000)),
    *((pa.time32(unit), st.integers(0, 86_400 * TICKS[unit] - 1)) for unit in ("s", "ms")),
    *((pa.time64(unit), st.integers(0, 86_400 * TICKS[unit] - 1)) for unit in ("us", "ns")),
]
# Older pyarrow uses NumPy's halves, which `send` does not support.
_HALVES = [pa.float16()] if int(pa.__version__.partition(".")[0]) > 20 else []
_PLAIN: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *((kind, st.text(max_size=20)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=20)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.string(), st.integers(100, 20_000).map(lambda length: "é" * length)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    *((kind, _numbers(kind)) for kind in _INTEGERS),
    *((kind, _floats(kind)) for kind in (*_HALVES, pa.float32(), pa.float64())),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
]


def _decimal_array(kind: pa.DataType, values: Sequence[int | None]) -> pa.Array:
    from decimal import Context, Decimal

    context = Context(prec=100)
    numbers = [None if value is None else Decimal(value).scaleb(-kind.scale, context) for value in values]
    return pa.array(numbers, kind)


@_kept
@st.composite
def scalars(draw: st.DrawFn, rows: int) -> pa.Array:
    """Draw an array of a type that is not nested."""
    where = draw(st.integers(0, 2))
    if where == 0:
        kind, values = draw(st.sampled_from(_OF_INTEGERS))
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(draw(_lists(values, rows)), wide).view(kind)
    if where == 1 and draw(st.booleans()):
        kind = draw(st.sampled_from(_DECIMALS))
        return _decimal_array(kind, draw(_lists(_decimals(kind), rows)))
    kind, values = draw(st.sampled_from(_PLAIN))
    return pa.array(draw(_lists(values, rows)), kind)


@_kept
def _lists(values: st.SearchStrategy[Any], rows: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values, min_size=rows, max_size=rows) | st.lists(values, min_size=rows, max_size=rows)


@_kept
@st.composite
def _offsets(draw: st.DrawFn, rows: int) -> list[int]:
    lengths = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    return [sum(lengths[:row]) for row in range(rows + 1)]


@_kept
@st.composite
def _masks(draw: st.DrawFn, rows: int) -> pa.Array:
    return pa.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), pa.bool_())


@_kept
@st.composite
def maps(draw: st.DrawFn, rows: int, depth: int = 0) -> pa.Array:
    """Draw an array of maps with text keys; a null may hide entries."""
    offsets = draw(_offsets(rows))
    keys = pa.array(draw(st.lists(st.text(max_size=5), min_size=offsets[-1], max_size=offsets[-1])), pa.string())
    items = draw(arrays(offsets[-1], depth))
    made = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items)
    return pa.MapArray.from_buffers(
        made.type, rows, [draw(_masks(rows)).buffers()[1], made.buffers()[1]], children=[made.values]
    )


@_kept
@st.composite
def _nested(draw: st.DrawFn, rows: int, depth: int) -> pa.Array:
    kind = draw(st.sampled_from(["list", "large_list", "fixed", "struct", "map", "dictionary_of_lists"]))
    if kind == "map":
        return draw(maps(rows, depth))
    if kind == "struct":
        names = draw(st.lists(st.text(max_size=4), unique=True, max_size=3))
        columns = [draw(arrays(rows, depth)) for _ in names]
        fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=draw(_masks(rows))) if names else pa.nulls(rows)
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(draw(arrays(rows * 2, depth)), 2, mask=draw(_masks(rows)))
    offsets = draw(_offsets(rows))
    inner = draw(arrays(offsets[-1], depth))
    if kind == "large_list":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), inner)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner)


@_kept
@st.composite
def arrays(draw: st.DrawFn, rows: int, depth: int = 2) -> pa.Array:
    """Draw an array of any type, sometimes a slice of a longer one."""
    extra = draw(st.integers(0, 3)) if depth == 2 else 0
    nested = depth > 0 and draw(st.integers(0, 3)) == 0
    made = draw(_nested(rows + extra, depth - 1) if nested else scalars(rows + extra))
    if depth == 2 and not nested:
        made = draw(_wrapped(made))
    return made.slice(draw(st.integers(0, extra)), rows)


@st.composite
def _wrapped(draw: st.DrawFn, array: pa.Array) -> pa.Array:
    how = draw(st.sampled_from(["plain", "plain", "dictionary", "runs"]))
    if how == "dictionary" and len(array):
        indices = draw(_lists(st.integers(0, len(array) - 1), len(array)))
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), array)
    if how == "runs" and len(array):
        ends = pa.array(range(2, 2 * len(array) + 1, 2), pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, array).slice(1, len(array))
    return array


@st.composite
def batches(draw: st.DrawFn, max_rows: int = 5) -> pa.RecordBatch:
    """Draw a record batch of any columns, whose names may repeat."""
    rows = draw(st.integers(0, max_rows))
    names = draw(st.lists(st.text(max_size=6) | st.sampled_from(["a", "b", "n" * 300]), max_size=3))
    columns = [draw(arrays(rows)) for _ in names]
    return pa.RecordBatch.from_arrays(columns, names=names) if names else pa.record_batch({"x": [1] * rows}).select([])


def rows_of(batch: pa.RecordBatch) -> list[list[tuple[str, Any]]]:
    """Return the fields of each row, with maps as dictionaries."""
    columns = [_values(column) for column in batch.columns]
    return [
        [(name, column[row]) for name, column in zip(batch.schema.names, columns, strict=True)]
        for row in range(batch.num_rows)
    ]


def map_entries(column: pa.Array) -> list[list[tuple[str, Any]] | None]:
    """Return the entries of each map, with inner maps as dictionaries."""
    values = [None if map_ is None else [key for key, _ in map_] for map_ in column.to_pylist()]
    places = column.offsets.to_pylist()
    items = _values(column.items)
    return [
        None if keys is None else list(zip(keys, items[start:end], strict=True))
        for keys, start, end in zip(values, places, places[1:], strict=False)
    ]


def _values(column: pa.Array) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # About equal keys of a map.
        return list(column.to_pylist(maps_as_pydicts="lossy"))


def sent(items: Sequence[LogItem], now: int = NOW) -> list[bytes]:
    return [encode_log(item, now) for item in items]
