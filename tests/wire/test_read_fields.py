"""Fields of logs become columns, as the protobuf library reads them."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.wire import read_fields as fields
from producer.wire.read_fields import Fields, split_fields
from producer.wire.schema import Content

MAP = pa.map_(pa.string(), pa.string())


def framed(key: bytes, value: bytes) -> bytes:
    return bytes(Content(Key=key, Value=value).SerializeToString())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=400)), max_size=20))
def test_keys_and_values_of_any_bytes_and_length_are_restored(pairs: list[tuple[bytes, bytes]]) -> None:
    """Keys and values of any bytes and length are restored."""
    keys, values = split_fields([framed(key, value) for key, value in pairs])
    assert list(zip(keys.to_pylist(), values.to_pylist(), strict=True)) == pairs


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2_100_000])
def test_a_value_of_any_size_is_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value is read by the fast path at each size where its length takes another byte."""
    monkeypatch.setattr(fields, "Content", None)  # The slow path would fail.
    keys, values = split_fields([framed(b"key", b"v" * size), framed(b"k", b"w")])
    assert (keys.to_pylist(), [len(value) for value in values.to_pylist()]) == ([b"key", b"k"], [size, 1])


@pytest.mark.parametrize(
    "unusual",
    [b"\x12\x01v\x0a\x01k", b"\x0a\x01k\x12\x01v\x18\x05", b"\x0a\x01k\x12\x81\x00v", b"\x0a\x01k", b""],
    ids=["value first", "unknown field", "long length", "no value", "nothing"],
)
def test_a_field_written_in_an_unusual_way_is_read(unusual: bytes) -> None:
    """An unusual form of a field is read as the library does, with its neighbours."""
    expected = Content.FromString(unusual)
    keys, values = split_fields([framed(b"a", b"b"), unusual])
    assert (keys.to_pylist(), values.to_pylist()) == ([b"a", expected.Key], [b"b", expected.Value])


def test_of_fields_with_one_name_the_last_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map has each key once per log, by the table and by the sort."""
    logs = [[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], [], [(b"a", b"4")], [(b"c", b"5"), (b"c", b"6")]]
    flat = [framed(key, value) for log in logs for key, value in log]
    for most in (1_000_000, 0):
        monkeypatch.setattr(fields, "_MOST_PAIRS", most)
        found = Fields(flat, [len(log) for log in logs])
        assert [dict(each) for each in found.as_map(MAP).to_pylist()] == [
            {"b": "2", "a": "3"},
            {},
            {"a": "4"},
            {"c": "6"},
        ]
        assert [len(each) for each in found.as_map(MAP).to_pylist()] == [2, 0, 1, 1]
        assert found.named("a").to_pylist() == [b"3", None, b"4", None]


def test_many_names_without_duplicates_need_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many names without duplicates are sorted, and none is removed."""
    monkeypatch.setattr(fields, "_MOST_PAIRS", 0)
    found = Fields([framed(b"k%d" % number, b"v") for number in range(6)], [3, 3])
    assert [len(each) for each in found.as_map(MAP).to_pylist()] == [3, 3]


def test_invalid_bytes_are_shown_as_xnn_in_the_map_the_value_of_a_named_field_is_exact() -> None:
    r"""Invalid bytes are shown as ``\xNN`` in the map; the value of a named field is exact."""
    found = Fields([framed(b"k\xff", b"\xfe\xc3\xa9"), framed(b"plain", b"text")], [2])
    assert found.as_map(MAP).to_pylist() == [[("k\\xff", "\\xfe\u00e9"), ("plain", "text")]]
    assert found.named("k\\xff").to_pylist() == [b"\xfe\xc3\xa9"]


def test_no_logs_and_logs_without_fields() -> None:
    """Reading no logs, or logs without fields, raises nothing."""
    assert Fields([], []).as_map(MAP).to_pylist() == []
    assert Fields([], [0, 0]).as_map(MAP).to_pylist() == [[], []]
    assert Fields([], [0, 0]).named("a").to_pylist() == [None, None]
