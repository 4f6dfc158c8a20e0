"""The sink ``loki``, to a server with the push API."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from producer.agent import AgentConfigError, EventBatch, RefusedError, SinkError
from producer.agent.events.interfaces import Sink
from producer.agent.testing import SinkConformance
from producer.testing import ManualClock
from tests.agent.components import bodies, lines, made

from .log_stores import Loki, running

STAMP = "1790000000123"
NANOSECONDS = 1_790_000_000_123_000_000


@pytest.fixture
def store() -> Iterator[Loki]:
    with running(Loki()) as served:
        yield served


def _sink(store: Loki, clock: Any = None, **options: Any) -> Any:
    return made("sinks", "loki", clock=clock, **{"endpoint": store.url, "labels": {"job": "x"}} | options)


class TestLoki(SinkConformance):
    wrong_options = ({"labels": {}}, {"label_headers": [str(number) for number in range(20)]}, {"endpoint": "far"})

    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        with running(Loki()) as self._store:
            yield

    def make(self) -> Sink:
        options = {"endpoint": self._store.url, "label_headers": ["host"], "metadata": ["*"]}
        return made("sinks", "loki", **options)  # type: ignore[no-any-return]

    def delivered(self) -> list[bytes]:
        return [line.encode() for _, _, line, _ in self._store.entries]

    def break_destination(self) -> Callable[[], None]:
        self._store.down = True

        def repair() -> None:
            self._store.down = False

        return repair

    def test_a_failure_raises_and_can_be_retried(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("producer.agent.sinks.http_requests._BACKOFF", 0.0)
        super().test_a_failure_raises_and_can_be_retried(tmp_path)


def test_events_with_the_same_labels_are_a_stream_in_their_order(store: Loki) -> None:
    """Events with the same labels are one stream; names are made valid, other headers become metadata."""
    events = [({"k8s.pod": pod, "timestamp": STAMP, "trace-id": "t"}, b"%d" % n) for n, pod in enumerate("aba")]
    options = {"label_headers": ["k8s.pod", "none"], "metadata": ["trace-id", "none"], "tenant": "us"}
    with closing(_sink(store, **options)) as sink:
        sink.write(
            [
                EventBatch.of_events(events),
                bodies("3", timestamp=STAMP, **{"k8s.pod": "b"}),
                bodies("4", timestamp=STAMP),
            ]
        )
    (request,) = store.requests
    assert [
        (each["stream"], [value[1] for value in each["values"]]) for each in json.loads(request.body)["streams"]
    ] == [
        ({"job": "x", "k8s_pod": "a"}, ["0", "2"]),
        ({"job": "x", "k8s_pod": "b"}, ["1", "3"]),
        ({"job": "x"}, ["4"]),
    ]
    assert store.entries[1] == ({"job": "x", "k8s_pod": "a"}, NANOSECONDS + 2, "2", {"trace_id": "t"})
    assert store.entries[-1][3] == {}
    assert (request.headers["X-Scope-OrgID"], request.headers["Content-Encoding"]) == ("us", "gzip")


def test_all_other_headers_may_become_metadata(store: Loki) -> None:
    """With ``*`` all headers but labels and the time become structured metadata."""
    with closing(_sink(store, label_headers=["host"], metadata=["*"])) as sink:
        sink.write([bodies("a", host="h", timestamp=STAMP, level="INFO")])
    assert store.entries == [({"job": "x", "host": "h"}, NANOSECONDS, "a", {"level": "INFO"})]


def test_equal_lines_of_a_batch_are_kept_and_events_sent_again_are_dropped_as_duplicates(store: Loki) -> None:
    """Equal lines of one time are all stored, and events sent again after a lost answer are stored once."""
    store.lost, batch = 1, lines("a", "a", "b", timestamp=STAMP).numbered(1)
    with closing(_sink(store)) as sink:
        with pytest.raises(SinkError):
            sink.write([batch])
        sink.write([batch])
    assert [line for _, _, line, _ in store.entries] == ["a", "a", "b"]
    assert len(store.requests) == 2


def test_after_429_or_5xx_the_sink_waits_and_sends_again(store: Loki) -> None:
    """After 429 and 5XX the events go back, and are sent again after ``Retry-After``."""
    clock, batch = ManualClock(1000.0), lines("a").numbered(1)
    store.answers += [(429, {"Retry-After": "5"}), (500, {})]
    with closing(_sink(store, clock)) as sink:
        for seconds in (5.1, 1.1):
            with pytest.raises(SinkError, match="answered"):
                sink.write([batch])
            with pytest.raises(SinkError, match="asked for a pause"):
                sink.write([batch])
            clock.advance(seconds)
        sink.write([batch])
    assert [line for _, _, line, _ in store.entries] == ["a"]


def test_only_refused_events_are_refused_and_the_others_are_stored_once(store: Loki) -> None:
    """Of a request with 400 only the events at fault are refused; the others are stored, each once."""
    store.refuses = lambda line: line.startswith("old")
    batch = lines(*map(str, range(20)), "old-1", "20", "old-2").numbered(1)
    with closing(_sink(store)) as sink, pytest.raises(RefusedError, match="answered 400: 'entry too far") as refused:
        sink.write([batch])
    assert [each.bodies() for each in refused.value.batches] == [[b"old-1", b"old-2"]]
    assert sorted(int(line) for _, _, line, _ in store.entries) == list(range(21))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": {}}, "labels: must have a value"),
        ({"label_headers": [f"h{number}" for number in range(15)]}, "at most 15 labels"),
        ({"label_headers": ["a.b", "a_b"]}, "each once"),
    ],
)
def test_labels_are_bounded_and_unique(options: dict[str, Any], message: str) -> None:
    """There are at most 15 labels, at least one of them fixed, and no two with the same name."""
    with pytest.raises(AgentConfigError, match=message):
        made("sinks", "loki", **{"endpoint": "http://x/"} | options)
