"""Statistics as JSON: ``to_dict``, and the periodic log line."""

import json
import logging

import pytest

from producer import Channel, MemoryChannel, Producer, UnreachableError
from producer.testing import ManualClock, RecordingSink, ScriptedSink
from tests.support.pipelines import config
from tests.support.waiting import eventually


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "channel"])
def test_streams_a_paused_destination_and_a_channel_have_json_with_text_keys(*, durable: bool) -> None:
    """Streams, a paused destination and a channel have JSON with text keys."""
    sink = ScriptedSink([UnreachableError("RequestError", "no") for _ in range(2)])
    channel: Channel | None = MemoryChannel() if durable else None
    assert json.loads(json.dumps(Producer(sink=RecordingSink()).stats().to_dict()))["accepted"] == 0
    with Producer(sink=sink, config=config(base_retry_backoff_ms=1, linger_ms=1), channel=channel) as producer:
        producer.stream("p", "l", topic="t", tags={"a": "b"}).send({"k": "v"}).result(60)
        said = json.loads(json.dumps(producer.stats().to_dict()))
    assert (said["accepted"], said["delivered"], said["attempts"]) == (1, 1, 3)
    assert said["batches"].keys() == {"open", "queued", "sending", "waiting"}
    assert said["streams"][0]["tags"] == [["a", "b"]]
    assert said["destinations"][0]["name"] == "p"
    assert (said["channel"] is not None) == durable


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "channel"])
def test_a_line_of_statistics_comes_every_interval(caplog: pytest.LogCaptureFixture, *, durable: bool) -> None:
    """One line of JSON is logged by producer.stats each stats_interval_ms."""
    clock = ManualClock()
    channel = MemoryChannel() if durable else None
    with (
        caplog.at_level(logging.INFO, "loghub.stats"),
        Producer(
            sink=RecordingSink(), config=config(stats_interval_ms=30_000, linger_ms=1), clock=clock, channel=channel
        ) as producer,
    ):
        producer.stream("p", "l").send({"k": "v"}, urgent=True)

        def lines() -> list[str]:
            return [one.getMessage() for one in caplog.records if one.name == "loghub.stats"]

        assert not lines()
        for count in (1, 2):
            eventually(lambda: clock.waiting)
            clock.advance(30)
            eventually(lambda count=count: len(lines()) == count)
        name, _, text = lines()[-1].partition(": ")
        assert name == producer.name
        assert json.loads(text)["accepted"] == 1
        assert (json.loads(text)["channel"] is not None) == durable


def test_by_default_no_statistics_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """By default no statistics are logged."""
    clock = ManualClock()
    with caplog.at_level(logging.INFO, "loghub.stats"), Producer(sink=RecordingSink(), clock=clock) as producer:
        producer.send("p", "l", {"k": "v"}, urgent=True).result(60)
        clock.advance(100_000)
        producer.send("p", "l", {"k": "v"}, urgent=True).result(60)
    assert not [one for one in caplog.records if one.name == "loghub.stats"]
