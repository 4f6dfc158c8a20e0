"""The encoder is compared with the official SDK, the protobuf library, and itself."""

import base64
import enum
import json
import random
import threading
import tracemalloc
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer import InvalidArgumentError, LogItem
from producer.wire import log_group as module
from producer.wire.log_group import encode_log, encode_tag, encode_tail, split_records, tail_size
from producer.wire.protobuf import read_varint, varint
from producer.wire.reserved import free_name
from producer.wire.text import text_of
from tests.support.log_group_schema import LogGroup, contents_of

VECTORS = json.loads((Path(__file__).parent / "vectors" / "loghub.json").read_text("utf-8"))
GROUPS = [pytest.param(group, id=group["name"]) for group in VECTORS["log_groups"]]
NOW = 1_700_000_000


def _tags(group: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in group["tags"]]


def _expected(group: dict[str, Any]) -> bytes:
    return base64.b64decode(group["log_group_base64"])


class Name(str):
    """A name that is never cached."""


def _known_and_new(log: dict[str, Any], now: int = NOW) -> tuple[bytes, bytes]:
    """Return the bytes of a log with cached names, and without."""
    encode_log(log, now)
    return encode_log(log, now), encode_log({Name(str.__str__(name)): value for name, value in log.items()}, now)


@pytest.mark.parametrize("group", GROUPS)
def test_each_log_group_of_the_official_sdk_is_encoded_byte_for_byte(group: dict[str, Any]) -> None:
    """Each LogGroup of the SDK's vectors is encoded byte for byte, from items with their own times."""
    records = [
        encode_log(LogItem([(k, v) for k, v in log["contents"]], log["time"], log["time_ns"]), NOW)
        for log in group["logs"]
    ]
    body = b"".join(records) + encode_tail(group["topic"], group["source"], _tags(group))
    assert body == _expected(group)
    assert list(split_records(body)) == records


@pytest.mark.parametrize("group", GROUPS)
def test_each_log_group_is_the_same_from_dicts(group: dict[str, Any]) -> None:
    """Logs sent as dicts have the same bytes as the vectors, with and without cached names."""
    expected = list(split_records(_expected(group)))
    for log, record in zip(group["logs"], expected, strict=True):
        contents = dict(log["contents"])
        if len(contents) != len(log["contents"]) or log["time_ns"]:
            continue  # A dict cannot express it; the items above do.
        for _ in range(3):
            assert encode_log(contents, log["time"]) == record


texts = st.one_of(st.text(), st.text(st.characters(max_codepoint=127)), st.sampled_from(["x" * n for n in (127, 128)]))
scalars = st.one_of(
    texts,
    st.binary(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.decimals(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.uuids(),
)
nested = st.recursive(
    st.one_of(texts, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.uuids(), st.decimals()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
values = st.one_of(texts, scalars, st.none(), nested.filter(lambda value: isinstance(value, dict | list)))


@settings(max_examples=400)
@given(st.dictionaries(texts, values, max_size=8), st.integers(0, 2**32 - 1))
def test_any_dict_is_decoded_by_the_protobuf_library_to_its_values_as_text_by_both_paths(
    log: dict[str, Any], now: int
) -> None:
    """Any dict is decoded by the protobuf library to its values as text, by both paths."""
    quick, general = _known_and_new(log, now)
    assert quick == general
    expected = []
    for name, value in log.items():
        if value is not None:
            text = text_of(value, name)
            expected.append((free_name(name).encode(), text if isinstance(text, bytes) else text.encode()))
    group = LogGroup()
    group.ParseFromString(quick)
    assert contents_of(quick) == [expected]
    assert group.Logs[0].Time == now
    assert not group.Logs[0].HasField("Time_ns")


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.text(), st.text(max_size=300)), max_size=4),
    st.integers(0, 2**32 - 1),
    st.integers(0, 999_999_999),
    st.tuples(st.text(), st.text()),
    st.lists(st.tuples(st.text(), st.text()), max_size=3),
)
def test_time_nanoseconds_repeated_fields_topic_source_and_tags_are_restored(
    pairs: list[tuple[str, str]], seconds: int, nanos: int, topic_source: tuple[str, str], tags: list[tuple[str, str]]
) -> None:
    """Time, nanoseconds, repeated fields, topic, source and tags are restored."""
    topic, source = topic_source
    body = encode_log(LogItem(pairs, seconds, nanos), NOW) + encode_tail(topic, source, tags)
    group = LogGroup()
    group.ParseFromString(body)
    assert (group.Logs[0].Time, group.Logs[0].Time_ns) == (seconds, nanos)
    assert contents_of(body) == [[(name.encode(), value.encode()) for name, value in pairs]]
    assert (group.Topic.decode(), group.Source.decode()) == (topic, source)
    assert [(tag.Key.decode(), tag.Value.decode()) for tag in group.LogTags] == tags
    assert list(split_records(body)) == [body[: len(body) - len(encode_tail(topic, source, tags))]]


@pytest.mark.parametrize("length", [0, 1, 118, 119, 120, 121, 127, 128, 16_383, 16_384, 20_000])
@pytest.mark.parametrize("character", ["a", "é", "😀"])
def test_the_size_of_a_tail_is_its_length(length: int, character: str) -> None:
    """The size of a tail is known exactly before it is made."""
    text = character * length
    for topic, source, tags in ((text, "", []), ("", text, []), (text, text, [(text, "v"), ("n", text), ("", "")])):
        assert tail_size(topic, source, tags) == len(encode_tail(topic, source, tags))


@pytest.mark.parametrize("length", [0, 1, 110, 111, 112, 113, 114, 127, 128, 20_000])
def test_a_tag_behind_a_tail_is_as_one_in_it(length: int) -> None:
    """A tag after a tail is encoded as one within it, in any length."""
    name, value = "__pack_id__", "x" * length
    assert encode_tail("", "", ()) + encode_tag(name, value) == encode_tail("", "", [(name, value)])


@given(st.integers(0, 2**64))
def test_a_varint_reads_back(number: int) -> None:
    """Reading a varint returns the number, and the position after it."""
    assert read_varint(b"\xff" + varint(number) + b"\x01", 1) == (number, 1 + len(varint(number)))


class _Colour(enum.StrEnum):
    RED = "red"


class _OldColour(str, enum.Enum):  # noqa: UP042  # the older spelling, whose format() differs
    RED = "red"


class _Number(enum.IntEnum):
    ONE = 1


class _Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "LOUD"

    def __format__(self, spec: str) -> str:
        return "LOUD"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (_Colour.RED, b"red"),
        (_OldColour.RED, b"red"),
        (_Number.ONE, b"1"),
        (_Loud("quiet"), b"quiet"),
        (True, b"true"),
        (bytearray(b"\xff\x00"), b"\xff\x00"),
        (memoryview(b"abc")[::2], b"ac"),
        (Decimal("1.10"), b"1.10"),
        (0.1, b"0.1"),
        (datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC), b"2026-03-04T05:06:07+00:00"),
        (date(2026, 3, 4), b"2026-03-04"),
        (time(1, 2), b"01:02:00"),
        (UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ({"a": [1, None, {"b": b"x"}, Decimal("1.0"), _Colour.RED]}, b'{"a":[1,null,{"b":"x"},"1.0","red"]}'),
        (("é",), b'["\xc3\xa9"]'),
    ],
)
def test_values_of_every_documented_type_subclasses_and_enums_have_their_documented_text(
    value: Any, text: bytes
) -> None:
    """Values of every documented type, subclasses and enums have their documented text, by both paths."""
    for record in _known_and_new({"first": "x", "field": value}):
        assert contents_of(record) == [[(b"first", b"x"), (b"field", text)]]


def test_names_that_are_subclasses_of_text_are_their_true_characters() -> None:
    """A name of a str subclass or enum is encoded as its characters."""
    for record in _known_and_new({_Loud("name"): "v", _OldColour.RED: "v"}):
        assert contents_of(record) == [[(b"name", b"v"), (b"red", b"v")]]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ({"a": "\ud800"}, "'a'.*not valid Unicode"),
        ({"\ud800": "a"}, "not valid Unicode"),
        ({"a": ["\ud800"]}, "'a'.*not valid Unicode"),
        ({1: "a"}, "name must be text, got 1"),
        ({None: "a"}, "name must be text, got None"),
        ({b"a": "a"}, "name must be text"),
        ({"a": object()}, "field 'a'.*builtins.object.*make it text, bytes, a number"),
        ({"a": lambda: None}, "'a'.*builtins.function"),
        ({"a": type}, "'a'.*builtins.type"),
        ({"a": range(2)}, "'a'.*builtins.range"),
        ({"a": [object()]}, "'a'.*cannot become JSON"),
        ({"a": {(1, 2): 3}}, "'a'.*cannot become JSON"),
        ({"a": 10**5000}, "'a'.*digits"),
        ({"a": [10**5000]}, "'a'.*cannot become JSON"),
        ("text", "must be a mapping or a LogItem, got str"),
        (None, "got NoneType"),
        (LogItem(5), "contents must be"),
        (LogItem([("a", "b", "c")]), "contents must be"),
        (LogItem({}, time=-1), "time: must be a number of seconds since 1970 from 0 to 4294967295, got -1"),
        (LogItem({}, time=2**32), "got 4294967296"),
        (LogItem({}, time=True), "got True"),
        (LogItem({}, time=-0.5), "got -1"),
        (LogItem({}, time_ns=10**9), "time_ns: .*999999999, got 1000000000"),
        (LogItem({}, time=datetime(2026, 1, 1)), "needs a time zone"),
    ],
)
def test_an_invalid_name_value_time_or_log_is_an_invalidargumenterror_with_the_reason_each_time(
    log: Any, words: str
) -> None:
    """An invalid name, value, time or log is an InvalidArgumentError with the reason, each time."""
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match=words):
            encode_log(log, NOW)


def test_a_structure_that_contains_itself_is_refused() -> None:
    """A circular list is an InvalidArgumentError, not a RecursionError."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidArgumentError, match="cannot become JSON"):
        encode_log({"a": loop}, NOW)


def test_after_a_refused_value_the_same_names_are_still_encoded_correctly() -> None:
    """After a refused value, the same names are still encoded correctly."""
    good = [encode_log({"a": "b"}, NOW) for _ in range(10)]
    with pytest.raises(InvalidArgumentError):
        encode_log({"a": "\udfff"}, NOW)
    assert encode_log({"a": "b"}, NOW) == good[0]
    assert len(set(good)) == 1


def test_an_aware_datetime_is_the_instant_in_any_zone() -> None:
    """A datetime is encoded as its UTC second and microseconds, in any zone."""
    moment = datetime(2026, 3, 4, 7, 6, 7, 123456, tzinfo=timezone(timedelta(hours=2)))
    group = LogGroup()
    group.ParseFromString(encode_log(LogItem({"a": "b"}, moment), NOW))
    assert (group.Logs[0].Time, group.Logs[0].Time_ns) == (int(moment.timestamp()), 123_456_000)


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the cache of names, initially empty."""
    heads = module._Heads()
    monkeypatch.setattr(module, "_heads", heads)
    return heads


@pytest.mark.usefixtures("without_coverage")
def test_thirty_thousand_names_and_lengths_leave_bounded_memory(heads: Any) -> None:
    """Random names and lengths leave a few megabytes in the cache, however many they are."""
    chance = random.Random(1)

    def made_up(count: int) -> None:
        for i in range(count):
            encode_log({f"name-{chance.randrange(10**9)}": "v", "n": i}, NOW)
            encode_log({f"s{i % 260}": "v" * chance.randrange(3000), "b": "w" * chance.randrange(3000)}, NOW)

    tracemalloc.start()
    try:
        made_up(15_000)
        half = tracemalloc.get_traced_memory()[0]
        made_up(15_000)
        whole = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert heads.known
    assert whole < 2 * module.MAX_KEPT_BYTES
    assert whole - half < module.MAX_KEPT_BYTES


def test_a_usual_log_is_known_again_however_many_names_were_seen_before(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full cache is cleared, names in use are soon cached again, and the bytes are always correct."""
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 6000)
    usual = {"level": "INFO", "message": "hello"}
    expected = encode_log(usual, NOW)
    for number in range(300):
        assert encode_log({f"{number}": "v" * number}, NOW)
        assert encode_log(usual, NOW) == expected
        assert {"level", "message"} <= heads.known.keys()
    assert len(heads.known) < 30


def test_very_long_names_and_values_are_sent_but_not_kept(heads: Any) -> None:
    """A name of more than 256 characters, or a very long value, is sent but not cached."""
    name = "n" * 257
    for _ in range(2):
        assert contents_of(encode_log({name: "v"}, NOW)) == [[(name.encode(), b"v")]]
        assert contents_of(encode_log({"k": "v" * 20_000}, NOW)) == [[(b"k", b"v" * 20_000)]]
    assert not heads.known


class Caseless(str):
    """A text that equals others with different characters."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.lower() == other.lower()

    def __hash__(self) -> int:  # type: ignore[no-redef]
        return hash(self.lower())


def test_a_name_of_a_users_class_is_sent_as_its_characters_even_if_it_equals_a_cached_name() -> None:
    """A name of a user's class is sent as its characters, even if it equals a cached name."""
    encode_log({"level": "v"}, NOW)
    assert contents_of(encode_log({Caseless("LEVEL"): "v"}, NOW)) == [[(b"LEVEL", b"v")]]


def test_threads_that_fill_the_tables_together_get_the_same_bytes(heads: Any) -> None:
    """Threads that fill the cache together get the same bytes as one alone."""
    barrier = threading.Barrier(8)
    logs = [{f"k{i % 20}": "v" * (i % 150), "other": str(i)} for i in range(400)]
    expected = [encode_log({Name(str.__str__(name)): value for name, value in log.items()}, NOW) for log in logs]
    wrong: list[int] = []

    def work() -> None:
        barrier.wait()
        for _ in range(3):
            wrong.extend(i for i, log in enumerate(logs) if encode_log(log, NOW) != expected[i])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
