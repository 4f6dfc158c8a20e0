"""The sink ``elasticsearch``, to a server with the bulk API."""

import json
import random
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer.agent import AgentConfigError, EventBatch, RefusedError, SinkError
from producer.agent.events.interfaces import Sink
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.testing import SinkConformance
from producer.testing import ManualClock
from tests.agent.components import bodies, lines, made, made_of_flume
from tests.agent.doubles import die, file_channel, opened

from .log_stores import Elasticsearch, running

STAMP = "1790000000123"


@pytest.fixture
def store() -> Iterator[Elasticsearch]:
    with running(Elasticsearch()) as served:
        yield served


def _sink(store: Elasticsearch, clock: Any = None, **options: Any) -> Any:
    return made("sinks", "elasticsearch", clock=clock, **{"endpoint": store.url, "index": "logs"} | options)


class TestElasticsearch(SinkConformance):
    wrong_options = ({"index": "Logs/x"}, {"index": "%!"}, {"endpoint": "far"}, {"batch_size": 0})

    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        with running(Elasticsearch()) as self._store:
            yield

    def make(self) -> Sink:
        index = "logs-%{host}-%Y.%m"
        return made("sinks", "elasticsearch", endpoint=self._store.url, index=index)  # type: ignore[no-any-return]

    def delivered(self) -> list[bytes]:
        return [body.encode() for body in self._store.stored()]

    def break_destination(self) -> Callable[[], None]:
        self._store.judge = lambda _document: (429, "es_rejected_execution_exception")

        def repair() -> None:
            self._store.judge = lambda _document: None

        return repair

    def test_a_failure_raises_and_can_be_retried(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("producer.agent.sinks.http_requests._BACKOFF", 0.0)
        super().test_a_failure_raises_and_can_be_retried(tmp_path)


def test_an_event_is_a_document_of_the_index_that_its_header_and_time_name(store: Elasticsearch) -> None:
    """An event is a new document, with its time, headers and body, in the index of its header and date."""
    with closing(_sink(store, index="logs-%{app}-%Y.%m.%d", pipeline="a b")) as sink:
        sink.write([bodies("one", timestamp=STAMP, app="Shop*", level="INFO")])
    assert store.documents == {
        ("logs-shop_-2026.09.21", "made-0"): {
            "@timestamp": "2026-09-21T14:13:20.123Z",
            "app": "Shop*",
            "level": "INFO",
            "message": "one",
        }
    }
    (request,) = store.requests
    assert request.path.startswith("/_bulk?")
    assert request.path.endswith("&pipeline=a%20b")
    assert (request.headers["Content-Encoding"], request.headers["Content-Type"]) == ("gzip", "application/x-ndjson")


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({"api_key": "me:hush"}, f"ApiKey {b64encode(b'me:hush').decode()}"),
        ({"api_key": "bWU6aHVzaA=="}, "ApiKey bWU6aHVzaA=="),
        ({"user": "me", "password": "hush"}, f"Basic {b64encode(b'me:hush').decode()}"),
    ],
)
def test_requests_carry_the_credentials_over_tls(options: dict[str, str], sent: str, tmp_path: Path) -> None:
    """Requests carry the API key, or user and password, over TLS that is verified; no message has them."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with running(Elasticsearch(context)) as store:
        known = {"endpoint": f"{store.url}/es", "authorities": str(tmp_path / "authority.pem")}
        with closing(_sink(store, **known, **options)) as sink:
            sink.write([lines("a")])
            assert store.stored() == ["a"]
            assert store.requests[0].headers["Authorization"] == sent
            store.judge = lambda _document: (403, f"not for {sent} or hush")
            with pytest.raises(RefusedError) as refused:
                sink.write([lines("b")])
        assert sent.partition(" ")[2] not in str(refused.value)
        with closing(_sink(store, **options)) as stranger, pytest.raises(SinkError, match="certificate"):
            stranger.write([lines("a")])


def test_of_a_request_only_the_items_with_429_or_5xx_are_sent_again_and_others_that_failed_are_refused(
    store: Elasticsearch,
) -> None:
    """Of a request, only items with 429 or 5XX are sent again, and items with another 4XX are refused with reasons."""
    clock = ManualClock(1000.0)
    verdicts = {"b": (400, "document_parsing_exception"), "c": (429, "busy"), "e": (503, "unavailable")}
    store.judge = lambda document: verdicts.get(document["message"])
    batch, behind = lines(*"abcdef").numbered(1), lines("g").numbered(2)
    with closing(_sink(store, clock)) as sink:
        with pytest.raises(SinkError, match=r"2 of 7 documents .* answered .*429 busy: because of c") as failed:
            sink.write([batch, behind])
        assert failed.value.later == [batch]
        with pytest.raises(SinkError, match="asked for a pause"):
            sink.write([batch])
        clock.advance(1.1)
        verdicts = {"b": verdicts["b"]}
        with pytest.raises(RefusedError, match=r"answered .* 400 document_parsing_exception: because of b") as refused:
            sink.write([batch])
        assert [(each.batch.sequence, each.batch.bodies()) for each in refused.value.refusals] == [(1, [b"b"])]
        assert refused.value.later == []
    assert sorted(store.stored()) == list("acdefg")
    second = [json.loads(line)["message"] for line in store.requests[1].body.splitlines()[1::2]]
    assert second == ["c", "e"]


def test_with_ids_an_event_that_is_sent_again_is_stored_once_also_after_a_restart(store: Elasticsearch) -> None:
    """With ids of the channel's numbers, events sent again after a lost answer or a restart are stored once."""
    batches = [lines("a", "b", "b").numbered(7, "origin-1"), lines("c").numbered(8, "origin-1")]
    store.lost = 1
    with closing(_sink(store, number_ids=True, batch_size=2)) as sink, pytest.raises(SinkError, match="no answer"):
        sink.write(batches)
    for _ in range(2):
        with closing(_sink(store, number_ids=True, batch_size=2)) as sink:
            sink.write(batches)
    assert store.stored() == ["a", "b", "b", "c"]


def test_a_header_may_have_the_id_and_other_events_get_one_of_the_server(store: Elasticsearch) -> None:
    """A header may have the ``_id``: equal ids are stored once, and an event without it gets the server's."""
    batch = EventBatch.of_events([({"id": "x"}, b"a"), ({"id": "x"}, b"a"), ({}, b"b")])
    with closing(_sink(store, id_header="id")) as sink:
        sink.write([batch])
    assert [(key[1], document["message"]) for key, document in store.documents.items()] == [("x", "a"), ("made-1", "b")]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_fails_each_event_is_stored_once_or_refused_once(store: Elasticsearch, seed: int) -> None:
    """Whatever fails, in whatever order, each event is stored once, or refused."""
    chance, clock = random.Random(seed), ManualClock(1000.0)
    bad = {str(number) for number in range(0, 200, 17)}

    def judge(document: dict[str, Any]) -> tuple[int, str] | None:
        if document["message"] in bad:
            return 400, "document_parsing_exception"
        return (chance.choice([429, 500, 503]), "busy") if chance.random() < 0.3 else None

    store.judge = judge
    left = [lines(*map(str, range(at, at + 20))).numbered(at, "o") for at in range(0, 200, 20)]
    refused: list[bytes] = []
    with closing(_sink(store, clock, number_ids=True, batch_size=30)) as sink:
        while left:
            store.lost = chance.random() < 0.2
            store.answers.extend([(chance.choice([413, 429, 502]), {})] * (chance.random() < 0.2))
            try:
                sink.write(left)
                left = []
            except RefusedError as error:
                refused += [body for each in error.batches for body in each.bodies()]
                left = list(error.later)
            except SinkError as error:
                left = list(error.later or ())
            clock.advance(2)
    assert sorted(refused) == sorted(body.encode() for body in bad)
    assert sorted(store.stored()) == sorted({str(number) for number in range(200)} - bad)


@pytest.mark.parametrize("said", [b"<html>", b"[]", b'{"errors": true, "items": [{"create": {"status": 201}}]}', b"{}"])
def test_another_answer_than_a_bulk_response_acknowledges_nothing(
    store: Elasticsearch, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 200 without the items of a bulk response acknowledges nothing: the events go back."""
    monkeypatch.setattr(store, "carry_out", lambda _request: (200, said))
    with closing(_sink(store)) as sink, pytest.raises(SinkError, match="answered no bulk response") as failed:
        sink.write([lines("a", "b").numbered(1)])
    assert failed.value.later is not None
    assert [each.bodies() for each in failed.value.later] == [[b"a", b"b"]]


def test_a_header_chosen_by_a_sender_cannot_name_a_system_index(store: Elasticsearch) -> None:
    """A header cannot name a hidden index, nor another pattern, whatever a sender puts into it."""
    with closing(_sink(store, index="%{app}")) as sink:
        for app in ("._-security", "A,b*", "../x", ""):
            sink.write([bodies("a", app=app)])
    assert [index for index, _ in store.documents] == ["security", "a_b_", "x", "none"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": "UP/x"}, "index: must be a valid name"),
        ({"index": "%!"}, "index: unknown escape"),
        ({"api_key": "hidden", "user": "me"}, "api_key: must not be given together"),
        ({"field": ""}, "field: must be text that is not empty"),
    ],
)
def test_invalid_options_are_reported_without_secrets(options: dict[str, str], message: str) -> None:
    """Invalid options are reported without secrets."""
    with pytest.raises(AgentConfigError, match=message) as caught:
        made("sinks", "elasticsearch", **{"endpoint": "http://x/", "index": "a"} | options)
    assert "hidden" not in str(caught.value)


def test_flumes_options_have_other_names_here() -> None:
    """A Flume file with its sink for Elasticsearch gets an error that names the options needed here."""
    with pytest.raises(AgentConfigError, match="endpoint"):
        made_of_flume("sinks", "org.apache.flume.sink.elasticsearch.ElasticSearchSink", hostNames="h:9300")


def test_after_a_crash_with_refused_events_held_back_each_event_is_still_stored_once(
    store: Elasticsearch, tmp_path: Path
) -> None:
    """After a crash while a refused event is held back, it is stored once it is accepted, and no other one again."""
    refusing = True
    store.judge = lambda document: (400, "bad") if refusing and document["message"] == "b" else None
    channel = file_channel(tmp_path)
    for texts in (["a", "b", "c"], ["d", "e"]):
        channel.put(lines(*texts))
    with closing(_sink(store, number_ids=True)) as sink:
        _runner(channel, sink).deliver(0)
    assert (sorted(store.stored()), channel.held) == (list("acde"), 3)
    die(channel)
    refusing = False
    with opened(file_channel(tmp_path)) as channel, closing(_sink(store, number_ids=True)) as sink:
        _runner(channel, sink).deliver(0)
        assert channel.held == 0
    assert sorted(store.stored()) == list("abcde")


def _runner(channel: BatchChannel, sink: Any) -> SinkRunner:
    return SinkRunner(
        "search", channel, sink, Health(), dead_letters=None, most_events=1000, most_bytes=sink.most_bytes
    )
