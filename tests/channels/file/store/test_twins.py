"""Native and pure format functions: the same bytes, events and errors."""

import importlib
from types import MappingProxyType, ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer import InvalidArgumentError
from producer.channels.file.store import format as pure
from producer.model.interfaces import Event
from tests.wire.twins import TWINS

_HEADERS = st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=9), max_size=3)
_SIZES = st.sampled_from([0, 1, 7, 4091, 4092, 4095, 4096, 4097, 5120, 5121])
_EVENTS = st.lists(st.builds(lambda headers, size: Event(headers, b"x" * size), _HEADERS, _SIZES), max_size=8)


@pytest.fixture(scope="module", params=TWINS)
def twin(request: pytest.FixtureRequest) -> ModuleType:
    name = {"pure": "format", "native": "_format"}[request.param]
    return importlib.import_module(f"producer.channels.file.store.{name}")


def _joined(payloads: list[Any]) -> list[bytes]:
    return [bytes(payload) for payload in payloads]


@given(events=_EVENTS, again=st.booleans())
def test_many_events_are_encoded_as_each_one_alone(twin: ModuleType, events: list[Event], again: bool) -> None:
    """Many events are encoded as each one alone."""
    given_events = [Event(events[0].headers, event.body) for event in events] if again else events
    payloads = twin.encode_events(given_events)
    assert list(map(type, payloads)) == [type(pure.encode_event(event)) for event in given_events]
    assert _joined(payloads) == [bytes(pure.encode_event(event)) for event in given_events]
    read = twin.decode_events(payloads, range(7, 99))
    assert read == given_events
    assert [event.sequence for event in read] == list(range(7, 7 + len(given_events)))


@given(
    events=_EVENTS,
    seed=st.integers(0, 2**32 - 1),
    first=st.integers(1, 2**63),
    transaction=st.integers(0, 2**63),
    others=st.lists(st.tuples(st.sampled_from([2, 3, 6]), st.binary(max_size=40)), max_size=3),
    large=st.booleans(),
)
def test_joined_records_equal_single_frames(
    twin: ModuleType,
    events: list[Event],
    seed: int,
    first: int,
    transaction: int,
    others: list[tuple[int, bytes]],
    large: bool,
) -> None:
    """Joined records equal single frames."""
    payloads = pure.encode_events([*events, Event({}, b"y" * pure.LARGE)] if large else events)
    data, sizes = twin.encode_records(seed, first, transaction, payloads, others)
    last = first + len(payloads) - 1
    rows = [(pure.Kind.PUT, first + at, bytes(payload)) for at, payload in enumerate(payloads)]
    rows += [(kind, last, payload) for kind, payload in others]
    frames = [
        pure.encode_record(seed, kind, len(rows) - at, sequence, transaction, payload)
        for at, (kind, sequence, payload) in enumerate(rows, 1)
    ]
    assert (data, sizes) == (b"".join(frames), [len(frame) for frame in frames[: len(payloads)]])


@pytest.mark.parametrize(
    "headers", [MappingProxyType({"a": "b"}), None, {}, MappingProxyType({})], ids=["mapping", "none", "empty", "no"]
)
@pytest.mark.parametrize(
    "body", [b"x", bytearray(b"x"), memoryview(b"x"), None], ids=["bytes", "array", "view", "none"]
)
def test_headers_and_bodies_of_other_kinds_are_stored(twin: ModuleType, headers: Any, body: Any) -> None:
    """Other types of headers and bodies are stored as ``encode_event`` does."""
    event = Event(headers, body)
    assert twin.encode_events([event]) == [pure.encode_event(event)]


@pytest.mark.parametrize("wrong", ["text", Event({"a": 1}, b""), Event({}, "text"), Event({1: "a"}, b"")])
def test_invalid_events_raise_the_same_error_as_alone(twin: ModuleType, wrong: Any) -> None:
    """Invalid events raise the same error as alone."""
    with pytest.raises(InvalidArgumentError) as alone:
        pure.encode_event(wrong)
    with pytest.raises(InvalidArgumentError) as among:
        twin.encode_events([Event({}, b"x"), wrong])
    assert str(among.value) == str(alone.value)


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\5\0\0\0abc", b"\xff\xff\xff\xff", b"\6\0\0\0\1\0\5\0\0\0"])
def test_invalid_bytes_raise_valueerror_also_after_a_valid_event(twin: ModuleType, payload: bytes) -> None:
    """Invalid bytes raise ValueError, also after a valid event."""
    with pytest.raises(ValueError, match=r".+"):
        twin.decode_events([b"\0\0\0\0x", payload], [1, 2])


def test_events_that_were_read_are_frozen_as_others(twin: ModuleType) -> None:
    """Decoded events and their headers are immutable, and headers of a block are shared."""
    one, two = twin.decode_events(pure.encode_events([Event({"a": "b"}, b"x"), Event({"a": "b"}, b"y")]), [1, 2])
    assert one.headers is two.headers
    with pytest.raises(AttributeError):
        one.body = b""
    with pytest.raises(TypeError):
        one.headers["a"] = "c"
