"""LogGroups of a response become columns, the same natively and purely, for any bytes."""

import os
from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from producer.wire import read_columns
from producer.wire.protobuf import delimited
from producer.wire.read_columns import Head, NativeGroups, PureGroups, ReadGroups, read_groups
from producer.wire.schema import LogGroupList
from tests.wire.twins import native

Pairs: TypeAlias = list[tuple[bytes, bytes]]
#: Topic, tags, and logs: seconds, nanoseconds, fields.
Groups: TypeAlias = list[tuple[bytes, Pairs, list[tuple[int, int, Pairs]]]]

#: Examples per property; ``READ_COLUMNS_EXAMPLES=5000`` finds rarer faults.
EXAMPLES = int(os.environ.get("READ_COLUMNS_EXAMPLES", "20"))

MAP = pa.map_(pa.string(), pa.string())
_NAMES = ["a", "b", "", "Größe", "k" * 130, "\\xff", "c"]
_KEYS = st.sampled_from([*(name.encode() for name in _NAMES), b"\xff"])
_CONTENTS = st.lists(st.tuples(_KEYS, st.binary(max_size=3) | st.sampled_from([b"v" * 33, b"w" * 200])), max_size=6)
_TIMES = st.sampled_from([0, 1_700_000_000, 2**32 - 1])
_LOGS = st.lists(st.tuples(_TIMES, st.integers(0, 10**9 - 1), _CONTENTS), max_size=3)
_GROUPS = st.lists(st.tuples(st.sampled_from([b"", b"t"]), _CONTENTS, _LOGS), max_size=3)


def field(number: int, payload: bytes) -> bytes:
    return delimited(number << 3 | 2, payload)


def pair(key: bytes, value: bytes) -> bytes:
    return field(1, key) + field(2, value)


def log_of(time: int, nanos: int, contents: Pairs) -> bytes:
    made = LogGroupList().LogGroups.add().Logs.add(Time=time, Time_ns=nanos)
    return bytes(made.SerializeToString()) + b"".join(field(2, pair(*content)) for content in contents)


def answer_of(groups: Groups) -> bytes:
    parts = []
    for topic, tags, logs in groups:
        body = b"".join(field(1, log_of(*log)) for log in logs) + field(3, topic) + field(4, b"s") + field(5, b"uuid")
        parts.append(field(1, body + b"".join(field(6, pair(*tag)) for tag in tags)))
    return b"".join(parts)


def all_of(groups: ReadGroups) -> list[object]:
    """Return all results for all logs, and for all but the first."""
    count = sum(groups.sizes)
    found: list[object] = [list(groups.sizes), [groups.head(index) for index in range(len(groups.sizes))]]
    for first in range(min(count, 1) + 1):
        found += [groups.times(first, count), groups.contents(first, count, MAP), *groups.named(first, count, _NAMES)]
        found += groups.named(first, count, ["c", "a"])
    return found


@native
@settings(max_examples=EXAMPLES)
@given(groups=_GROUPS)
@example(groups=[(b"", [], [(1, 0, [(b"%d" % (number % 300), b"v") for number in range(600)])])])
def test_the_twins_agree(groups: Groups) -> None:
    """Both agree on repeated names, bytes that are not text, long keys, empty values, and logs without fields."""
    body = answer_of(groups)
    fast = read_groups(body)
    assert isinstance(fast, NativeGroups)
    assert all_of(fast) == all_of(PureGroups(body))


def outcome(make: type[PureGroups], body: bytes) -> object:
    try:
        return all_of(make(body))
    except ValueError as error:
        return str(error)


@native
@settings(max_examples=EXAMPLES)
@given(data=st.data(), groups=_GROUPS)
def test_the_twins_agree_on_damaged_answers(data: st.DataObject, groups: Groups) -> None:
    """Both agree on truncated and altered responses, or raise the same error."""
    body = bytearray(answer_of(groups))
    place = data.draw(st.integers(0, len(body)))
    if data.draw(st.booleans()):
        del body[place:]
    elif place < len(body):
        body[place] = data.draw(st.sampled_from([0, 1, 0x0A, 0x12, 0x7F, 0x80, 0xFF]))
    assert outcome(read_groups, bytes(body)) == outcome(PureGroups, bytes(body))  # type: ignore[arg-type]


_LOG = field(1, log_of(5, 0, [(b"a", b"1")]))


@pytest.mark.parametrize(
    "group",
    [
        field(1, field(2, field(2, b"1") + field(1, b"a"))),
        field(1, field(2, pair(b"a", b"1") + b"\x18\x05")),
        field(1, field(2, b"\x0a\x01a\x12\x81\x001")),
        field(1, field(2, field(1, b"a"))),
        field(1, field(2, b"")),
        field(1, b"\x08\x85\x80\x80\x80\x80\x80\x80\x80\x80\x01" + field(2, pair(b"a", b"1"))),
        field(1, b"\x28\x05" + field(2, pair(b"a", b"1"))),
        field(6, field(2, b"v")),
        b"\x38\x05",
    ],
    ids=[
        "value first",
        "unknown in a field",
        "long length",
        "no value",
        "nothing",
        "time of 64 bits",
        "unknown in a log",
        "tag without a key",
        "unknown in a group",
    ],
)
def test_an_unusual_form_of_a_field_is_read_as_the_protobuf_library_does_with_its_neighbours(group: bytes) -> None:
    """An unusual form of a field is read as the protobuf library does, with its neighbours."""
    body = field(1, _LOG + group + _LOG)
    found = read_groups(body)
    assert all_of(found) == all_of(PureGroups(body))
    assert found.named(0, 1, ["a"])[0].to_pylist() == [b"1"]


def test_a_page_of_a_proxy_or_half_a_response_is_an_error() -> None:
    """A page of a proxy, or half a response, is an error."""
    for body in (b"<html>", field(1, _LOG)[:-1]):
        with pytest.raises(ValueError, match="not a list of LogGroups"):
            read_groups(body)


def test_logs_beyond_the_response_are_an_error() -> None:
    """Logs beyond the response are an error."""
    found = read_groups(field(1, _LOG))
    assert found.head(0) == Head(b"", b"", [])
    with pytest.raises(IndexError):
        found.head(1)


@native
@pytest.mark.parametrize(("first", "stop"), [(0, 2), (-1, 1), (1, 0)])
def test_native_code_refuses_a_range_beyond_the_logs_of_the_response(first: int, stop: int) -> None:
    """Native code refuses a range beyond the logs of the response."""
    groups = read_columns._native.Groups(field(1, _LOG))  # type: ignore[union-attr]
    for ask in (groups.times, groups.contents, lambda *span: groups.named(*span, [b"a"])):
        with pytest.raises(IndexError):
            ask(first, stop)


@native
@pytest.mark.parametrize(
    "logs",
    [
        ["ab", "aba", "ab", "abb"],
        ["aab", "ab", "aab"],
        ["abc", "acb", "abcab", "abcd"],
        ["", "aa", "a"],
        ["ab", "a", "aa"],
    ],
)
def test_names_that_come_twice_are_found_whatever_the_log_before_had(logs: list[str]) -> None:
    """The last of repeated fields is used, even if a log begins with the names of the one before."""
    values = iter(range(100))
    contents = [[(name.encode(), b"%d" % next(values) * len(log)) for name in log] for log in logs]
    body = answer_of([(b"", [], [(1, 0, each) for each in contents])])
    fast = read_groups(body)
    assert isinstance(fast, NativeGroups)
    assert [dict(each) for each in fast.contents(0, len(logs), MAP).to_pylist()] == [
        {name.decode(): value.decode() for name, value in each} for each in contents_last(contents)
    ]
    assert all_of(fast) == all_of(PureGroups(body))


def contents_last(logs: list[Pairs]) -> list[Pairs]:
    """Return the fields of each log without earlier duplicates."""
    return [[pair for place, pair in enumerate(log) if pair[0] not in dict(log[place + 1 :])] for log in logs]


@native
def test_topic_source_and_tags_may_be_before_between_and_after_the_logs_of_their_loggroup() -> None:
    """Topic, source and tags may be before, between and after the logs of their LogGroup."""
    group = (
        field(3, b"t") + _LOG + field(6, pair(b"x", b"1")) + _LOG + field(4, b"s") + field(6, pair(b"y", b"2")) + _LOG
    )
    found = read_groups(field(1, group) + field(1, _LOG) + field(1, b"") + field(1, field(3, b"u")))
    assert isinstance(found, NativeGroups)
    heads = [found.head(index) for index in range(4)]
    assert heads[0] == Head(b"t", b"s", [(b"x", b"1"), (b"y", b"2")])
    assert heads[1:] == [Head(b"", b"", []), Head(b"", b"", []), Head(b"u", b"", [])]
