"""Arrow data that points outside of its buffers is refused."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from producer import Producer, ProducerConfig
from producer.model.errors import InvalidArgumentError
from producer.testing import RecordingSink

from .twins import columnar_twin

pytestmark = pytest.mark.usefixtures(columnar_twin.__name__)


def numbers(kind: type, *values: int) -> pa.Buffer:
    return pa.py_buffer(np.array(values, kind))


def texts(*offsets: int, kind: pa.DataType | None = None, validity: bytes | None = None) -> pa.Array:
    """Make an array of 10 bytes of text with these offsets."""
    kind = kind or pa.string()
    width = np.int64 if kind in (pa.large_string(), pa.large_binary()) else np.int32
    bits = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [bits, numbers(width, *offsets), pa.py_buffer(b"0123456789")])


def views(size: int, which: int, start: int, **more: Any) -> pa.Array:
    """Make an array of a short view, and one into a buffer of 20 bytes."""
    words = numbers(np.int32, 1, 0x61, 0, 0, size, 0x30303030, which, start)
    return pa.Array.from_buffers(more.get("kind", pa.string_view()), 2, [None, words, pa.py_buffer(b"0" * 20)])


def lists(values: pa.Array, *offsets: int) -> pa.Array:
    return pa.Array.from_buffers(
        pa.list_(values.type), len(offsets) - 1, [None, numbers(np.int32, *offsets)], children=[values]
    )


def maps(items: pa.Array, *offsets: int) -> pa.Array:
    entries = pa.StructArray.from_arrays([pa.array(list("abcd")), items], names=["key", "value"])
    kind = pa.map_(pa.string(), items.type)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, numbers(np.int32, *offsets)], children=[entries])


def runs(*, offset: int = 4, end: int = 2) -> pa.Array:
    """Make an array of three runs, damaged afterwards, as pyarrow checks them when they are made."""
    offsets, ends = np.array([0, 2, 4, 10], np.int32), np.array([1, 2, 3], np.int32)
    values = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"0123456789")])
    made = pa.RunEndEncodedArray.from_arrays(pa.Array.from_buffers(pa.int32(), 3, [None, pa.py_buffer(ends)]), values)
    offsets[2], ends[1] = offset, end
    return made


BEYOND, FALLING, NEGATIVE = (0, 5, 5_000, 10), (0, 8, 3, 10), (0, -4_000, 4, 10)
GOOD = texts(0, 2, 4, 10)

DAMAGED = {
    **{
        f"{kind} {name}": texts(*offsets, kind=kind)
        for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
        for name, offsets in {"beyond": BEYOND, "falling": FALLING, "negative": NEGATIVE}.items()
    },
    "with nulls": texts(*BEYOND, validity=b"\x06"),
    "a view beyond its buffer": views(15, 0, 6),
    "a view before its buffer": views(15, 0, -1),
    "a view of no buffer": views(15, 1, 0),
    "a view of no buffer, before the first": views(15, -1, 0),
    "a view of no size": views(-1, 0, 0),
    "a binary view": views(15, 0, 6, kind=pa.binary_view()),
    "a dictionary's values": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), texts(*BEYOND)),
    "a large dictionary's values": pa.DictionaryArray.from_arrays(pa.array([1]), texts(*BEYOND)),
    "a dictionary's positions": pa.DictionaryArray.from_arrays(pa.array([0, 9]), GOOD, safe=False),
    "runs": runs(offset=5_000),
    "ends of runs": runs(end=90),
    "a struct's child": pa.StructArray.from_arrays([texts(*BEYOND)], names=["a"]),
    "a list": lists(pa.array([1, 2, 3, 4]), 0, 400, 4),
    "a list's child": lists(texts(*BEYOND), 0, 1, 3),
    "a list of lists": lists(lists(pa.array([1, 2, 3, 4]), 0, 400, 4), 0, 2),
    "a large list": pa.Array.from_buffers(
        pa.large_list(pa.int64()), 2, [None, numbers(np.int64, 0, 400, 4)], children=[pa.array([1, 2, 3, 4])]
    ),
    "a list of fixed size": pa.FixedSizeListArray.from_arrays(texts(*BEYOND), 3),
    "a view of a list": pa.Array.from_buffers(
        pa.list_view(pa.int64()), 1, [None, numbers(np.int32, 0), numbers(np.int32, 400)], children=[pa.array([1])]
    )
    if hasattr(pa, "list_view")
    else lists(pa.array([1, 2]), 0, 400, 2),
    "a map": maps(pa.array([1, 2, 3, 4]), 0, 400, 4),
    "a map's items": maps(texts(0, *BEYOND), 0, 2, 4),
    "a union": pa.Array.from_buffers(
        pa.dense_union([pa.field("a", pa.int64())]),
        1,
        [None, pa.py_buffer(b"\0"), numbers(np.int32, 400)],
        children=[pa.array([1])],
    ),
    "an extension": pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts(*BEYOND)),
}


def refused(column: pa.Array, start: int = 0, stop: int | None = None, **options: str) -> str:
    """Return the error of ``send_arrow``, and check that nothing is sent, and no memory kept."""
    sink = RecordingSink()
    whole = pa.RecordBatch.from_arrays([column], names=["k"])
    with Producer(config=ProducerConfig(source="here"), sink=sink) as producer:
        with pytest.raises(InvalidArgumentError) as caught:
            producer.stream("p", "l").send_arrow(whole[start:stop], **options)
        assert producer.stats().memory_used == 0
    assert sink.records() == []
    return str(caught.value)


@pytest.mark.parametrize("column", DAMAGED.values(), ids=DAMAGED)
def test_data_of_any_type_that_points_elsewhere_is_refused_with_its_column(column: pa.Array) -> None:
    """Data of any type that points elsewhere is refused with its column, before a byte outside is read."""
    said = refused(column)
    assert "'k'" in said or "is inconsistent" in said


@pytest.mark.parametrize(
    ("offsets", "start", "stop"),
    [((0, 2, 4, 5_000, 8, 10), 1, 4), ((0, 2, 5_000, 10), 0, 2), ((0, -4_000, 4, 10), 1, 3)],
    ids=["within", "at the end", "at the beginning"],
)
def test_so_are_slices(offsets: tuple[int, ...], start: int, stop: int) -> None:
    """Slices that begin or end at invalid offsets are refused."""
    refused(texts(*offsets), start, stop)


@pytest.mark.parametrize("offsets", [BEYOND, FALLING, NEGATIVE], ids=["beyond", "falling", "negative"])
@pytest.mark.parametrize("option", ["topic_column", "source_column", "shard_hash_column"])
def test_so_are_columns_that_pick_the_stream(option: str, offsets: tuple[int, ...]) -> None:
    """Invalid columns that select the stream are refused, as their texts are read first."""
    refused(texts(*offsets), **{option: "k"})


@pytest.mark.parametrize(
    "column",
    [
        maps(GOOD.take(pa.array([0, 1, 2, 0])), 0, 400, 4),
        maps(texts(0, *BEYOND), 0, 2, 4),
        maps(pa.array([0] * 4), 4, 0, 4),
    ],
    ids=["places", "items", "falling"],
)
def test_so_is_a_column_of_contents(column: pa.Array) -> None:
    """A column of contents with invalid offsets or texts is refused."""
    refused(column, contents_column="k")


def test_the_row_of_a_text_is_named() -> None:
    """The error for a text names its row, as other errors do."""
    said = refused(texts(*FALLING))
    assert said == "row 1: field 'k': it is outside of the column's data; check the array with validate(full=True)"


def test_a_null_view_may_point_anywhere_but_offsets_must_ascend() -> None:
    """A null view may point anywhere, but offsets must ascend."""
    words = numbers(np.int32, 1, 0x61, 0, 0, 99, 0, 7, -7)
    column = pa.Array.from_buffers(pa.string_view(), 2, [pa.py_buffer(b"\1"), words])
    sink = RecordingSink()
    with Producer(config=ProducerConfig(source="here"), sink=sink) as producer:
        producer.stream("p", "l").send_arrow(pa.record_batch({"k": column}))
    assert [record.endswith(b"\x12\x06\n\x01k\x12\x01a") for record in sink.records()] == [True, False]
