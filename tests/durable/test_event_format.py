"""A record survives its event unchanged, and an invalid event is refused with the reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.durable.event_format import (
    UnreadableEventError,
    ident_of,
    number_of,
    numbered,
    read_event,
    write_event,
)
from producer.model.interfaces import Event
from producer.model.records import StreamKey

_TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
_NAME = _TEXT.filter(bool)
_KEYS = st.builds(
    StreamKey,
    _NAME,
    _NAME,
    _TEXT,
    _TEXT,
    st.none() | st.text("0123456789abcdef", min_size=32, max_size=32),
    st.lists(st.tuples(_TEXT, _TEXT), max_size=3).map(tuple),
    st.sampled_from(("", "ordered", "idempotent")),
)
SEQUENCED = f"sequence:{'ab' * 16}:{'cd' * 8}"
KEY = StreamKey("p", "l")


@given(
    _KEYS, st.binary(min_size=8, max_size=8), st.integers(0, 2**64 - 1), st.integers(1, 40_960), st.binary(min_size=1)
)
def test_a_record_comes_out_as_it_went_in(
    key: StreamKey, instance: bytes, number: int, logs: int, record: bytes
) -> None:
    """Stream, stable name, number of logs and bytes survive the event."""
    read = read_event(write_event(key, ident_of(instance, number), logs, record))
    assert (read.key, read.logs, read.record) == (key, logs, record)
    assert (read.ident[:8], number_of(read.ident)) == (instance, number)


def test_the_order_and_the_number_of_a_record_of_a_stream_with_a_sequencekey_survive_the_event() -> None:
    """The order and the number of a record of a stream with a SequenceKey survive the event."""
    key = KEY._replace(order=SEQUENCED)
    read = read_event(write_event(key, b"i" * 16, 1, b"x", numbered(2**63 - 1)))
    assert (read.key, read.number) == (key, 2**63 - 1)


def test_events_of_a_stream_without_an_order_have_no_header_for_it() -> None:
    """Events of ordinary streams have no header for the order, and an event without it belongs to one."""
    assert "order" not in write_event(KEY, b"i" * 16, 1, b"x").headers
    assert read_event(Event({"project": "p", "logstore": "l"}, b"\0" * 19 + b"\x01x")).key == KEY


def test_the_body_is_as_documented() -> None:
    """The example of the documentation is correct, byte by byte."""
    event = write_event(KEY, ident_of(bytes.fromhex("5f0c3a9177e208b4"), 0), 1, bytes.fromhex("0a012a"))
    assert event.body == bytes.fromhex("5f0c3a9177e208b4 0000000000000000 00000001 0a012a")


def test_all_events_of_a_stream_share_their_headers() -> None:
    """The second event of a stream shares its headers; further headers do not change the shared ones."""
    one, two = (write_event(KEY, b"i" * 16, 1, b"x") for _ in range(2))
    assert one.headers is two.headers
    more = write_event(KEY, b"i" * 16, 1, b"x", {"error_code": "C"})
    assert more.headers == {**one.headers, "error_code": "C"}
    assert "error_code" not in one.headers


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"project": "p", "logstore": "l"}, b"short", "5 bytes"),
        ({"project": "p", "logstore": "l"}, b"\0" * 20, "0 logs in 0 bytes"),
        ({"project": "p", "logstore": "l"}, b"\0" * 16 + b"\xff\xff\xff\xff" + b"x", "4294967295 logs"),
        ({"project": "p", "logstore": "l"}, b"\0" * 19 + b"\x01" + b"x" * (8 * 2**20 + 1), "8388609 bytes"),
        ({}, b"\0" * 19 + b"\x01x", "must name a stream"),
        ({"project": "p", "logstore": ""}, b"\0" * 19 + b"\x01x", "must name a stream"),
        ({"project": "p", "logstore": "l", "tags": "no"}, b"\0" * 19 + b"\x01x", "tags"),
        ({"project": "p", "logstore": "l", "tags": '[["a"]]'}, b"\0" * 19 + b"\x01x", "tags"),
        ({"project": "p", "logstore": "l", "tags": '[["a", 1]]'}, b"\0" * 19 + b"\x01x", "tags"),
        ({"project": "p", "logstore": "l", "tags": "7"}, b"\0" * 19 + b"\x01x", "tags"),
        ({"project": "p", "logstore": "l", "order": "backwards"}, b"\0" * 19 + b"\x01x", "backwards"),
        ({"project": "p", "logstore": "l", "order": SEQUENCED}, b"\0" * 19 + b"\x01x", "seqid"),
        ({"project": "p", "logstore": "l", "order": SEQUENCED, "seqid": "0"}, b"\0" * 19 + b"\x01x", "seqid"),
        ({"project": "p", "logstore": "l", "order": SEQUENCED, "seqid": "9" * 99}, b"\0" * 19 + b"\x01x", "seqid"),
    ],
)
def test_unreadableeventerror_says_whether_the_body_is_too_short_or_too_large(
    headers: dict[str, str], body: bytes, words: str
) -> None:
    """UnreadableEventError says whether the body is too short or too large, or the stream or tags are invalid."""
    with pytest.raises(UnreadableEventError, match=words):
        read_event(Event(headers, body))
