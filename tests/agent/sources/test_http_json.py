"""JSON from peers, parsed in bounded memory."""

import json
import time
import tracemalloc
from collections.abc import Callable

import pytest

from producer.agent.protocols import reckoning
from producer.agent.sources.budget import Budget, Holding
from producer.agent.sources.http_json import events_of_json
from producer.agent.sources.http_requests import Limits, Request, RequestError


class _Held:
    def __init__(self, most: int = 1 << 30) -> None:
        self.size, self._limits = 0, Limits(1, 1.0, Budget(most, most))
        self._request = Request("POST", "/", {}, Holding(self._limits.budget, "a"))

    def __call__(self, size: int) -> None:
        self._limits.hold(self._request, size)
        self.size += size


def _peak(act: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        " [ ] ",
        '[{"body": "a"}]',
        ' [ {"headers": {"a": "1"}, "body": "x"} , {"headers": {"b": 2, "n": null}} ,\n{"headers": {"a": "1"}} ] ',
    ],
)
def test_a_list_is_taken_apart_as_a_whole_would_be(text: str) -> None:
    """Incremental parsing gives the headers and bodies in order; numbers become text, nulls are left out."""
    wanted = [
        ({n: v if isinstance(v, str) else json.dumps(v) for n, v in e.get("headers", {}).items() if v is not None}, e)
        for e in json.loads(text)
    ]
    batch = events_of_json(text.encode(), _Held())
    assert list(batch.events()) == [(headers, event.get("body", "").encode()) for headers, event in wanted]


@pytest.mark.parametrize("text", ["[{}", "[{},", "[{},]", "[{} {}]", "[,]", "[{}]x", "[{}]]", "[1", "", "{", "nope"])
def test_invalid_json_is_refused_with_400(text: str) -> None:
    """Invalid JSON is refused with 400."""
    with pytest.raises(RequestError) as caught:
        events_of_json(text.encode(), _Held())
    assert caught.value.status == 400


def test_the_memory_counted_for_a_request_is_about_the_memory_that_its_events_take() -> None:
    """The memory counted for a request is about the memory that its events take."""
    events = [
        {"headers": {f"h{n % 7}": f"value {i} {n}" for n in range(5)}, "body": f"body {i}"} for i in range(20_000)
    ]
    held, body = _Held(), json.dumps(events).encode()
    tracemalloc.start()
    try:
        batch = events_of_json(body, held)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert batch.count == 20_000
    assert kept < 1.2 * held.size


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(json.dumps({"headers": {str(n): "x"}}) for n in range(10_000)) + "]",
        "[" + "{}," * 200_000 + "{}]",
    ],
)
def test_a_small_request_does_not_become_a_large_one(text: str) -> None:
    """A small request that would become many objects (distinct headers, empty events) gets 413 at the memory limit."""
    limit = 8 << 20
    started = time.thread_time()

    def act() -> None:
        with pytest.raises(RequestError) as caught:
            events_of_json(text.encode(), _Held(limit))
        assert caught.value.status == 413

    assert _peak(act) < 3 * limit
    assert time.thread_time() - started < 20


def test_a_request_has_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with too many events is refused with 413."""
    monkeypatch.setattr(reckoning, "MOST_EVENTS", 3)
    assert events_of_json(b"[{},{},{}]", _Held()).count == 3
    with pytest.raises(RequestError, match="more than 3 events"):
        events_of_json(b"[{},{},{},{}]", _Held())


def test_an_event_of_brackets_is_reckoned_before_it_is_taken_apart() -> None:
    """An event of nested brackets, 25 times its text as objects, gets 413 before it is parsed if memory is short."""
    text = b'[{"headers": {"a": [' + b"{}," * 100_000 + b"0]}}]"
    held = _Held()
    assert _peak(lambda: events_of_json(text, held)) < held.size + len(text)

    def act() -> None:
        with pytest.raises(RequestError) as caught:
            events_of_json(text, _Held(2 << 20))
        assert caught.value.status == 413

    assert _peak(act) < 4 << 20


@pytest.mark.parametrize("charset", ["utf-8", "utf-16", "utf-32"])
def test_texts_brackets_and_characters_across_the_boundaries_of_decoding_windows_are_parsed_correctly(
    charset: str,
) -> None:
    """Texts, brackets and characters across the boundaries of decoding windows are parsed correctly."""
    events = [{"headers": {"n": str(n)}, "body": "é" * size} for n, size in enumerate((1, 70_000, 3, 300_000, 65_530))]
    text = json.dumps(events, ensure_ascii=False)
    batch = events_of_json(text.encode(charset), _Held())
    assert batch.bodies() == [event["body"].encode() for event in events]  # type: ignore[attr-defined]


def test_both_of_two_headers_with_the_same_name_are_kept_an_event_with_an_unknown_key_gets_400() -> None:
    """Both of two headers with the same name are kept; an event with an unknown key gets 400."""
    batch = events_of_json(b'[{"headers": {"a": "1", "a": 2, "a": NaN, "b": 123456789012345678901234}}]', _Held())
    assert next(batch.headers()) == {"a": "1", "a_2": "2", "a_3": "NaN", "b": "123456789012345678901234"}
    with pytest.raises(RequestError, match="unknown key 'time'") as caught:
        events_of_json(b'[{"headers": {}, "time": 1}]', _Held())
    assert caught.value.status == 400
