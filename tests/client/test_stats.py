"""``stats()`` returns a snapshot without side effects that adds up, and can be written as JSON."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from producer import Producer, ProducerClosedError, SequenceKey
from producer.channels import FileChannel
from producer.testing import RecordingSink
from tests.support.pipelines import config
from tests.support.waiting import PATIENCE

LOG = {"a": "b"}


def test_stats_build_nothing_so_that_a_closed_producer_stays_closed() -> None:
    """A producer closed before its first send refuses send, even after stats()."""
    producer = Producer(sink=RecordingSink(), config=config())
    producer.close()
    assert producer.stats().accepted == 0
    with pytest.raises(ProducerClosedError):
        producer.send("p", "l", LOG)
    with pytest.raises(ProducerClosedError):
        producer.stream("p", "l").send_many([LOG])


def test_stats_of_a_producer_that_has_sent_nothing_are_complete() -> None:
    """Without any send, all counts are 0 and the limit is the option's."""
    producer = Producer(sink=RecordingSink(), config=config(total_size_in_bytes=12_345))
    before = producer.stats()
    assert producer._pipeline is None
    producer.close()
    for stats in (before, producer.stats()):
        assert (stats.accepted, stats.pending, stats.memory_used, stats.memory_limit) == (0, 0, 0, 12_345)
        assert set(stats.batches) == {"open", "queued", "sending", "waiting"}
        assert stats.memory_used == sum(stats.memory_by_stage.values())
        assert stats.streams == ()
    with Producer(sink=RecordingSink(), config=config()) as used:
        used.send("p", "l", LOG).result(PATIENCE)
        assert set(used.stats().batches) == set(before.batches)
        assert set(used.stats().memory_by_stage) == set(before.memory_by_stage)


def _read(producer: Producer) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(producer.stats())))
    return read


def test_stats_can_be_written_as_json() -> None:
    """json.dumps(asdict(stats())) works with streams of every kind, each with its names."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        assert _read(producer)["streams"] == []
        sequence = SequenceKey("0" * 31 + "1")
        streams = [
            producer.stream("p", "l", topic="t", tags={"k": "v"}),
            producer.stream("p", "ordered", ordered=True),
            producer.stream("p", "idempotent", idempotent=True),
            producer.stream("p", "sequence", idempotent=sequence),
        ]
        for stream in streams:
            stream.send([LOG, LOG]).result(PATIENCE)
        producer.flush(PATIENCE)
        by_logstore = {stream["logstore"]: stream for stream in _read(producer)["streams"]}
    assert by_logstore["l"] == {
        "project": "p",
        "logstore": "l",
        "topic": "t",
        "source": "here",
        "shard_hash": None,
        "tags": [["k", "v"]],
        "order": "",
        "accepted": 2,
        "delivered": 2,
        "failed": 0,
        "pending": 0,
        "pending_bytes": 0,
    }
    assert by_logstore["ordered"]["order"] == "ordered"
    assert by_logstore["idempotent"]["order"] == "idempotent"
    assert by_logstore["sequence"]["order"].startswith("sequence:" + sequence.key)


def test_stats_of_a_producer_with_a_channel_can_be_written_as_json(tmp_path: Path) -> None:
    """The channel's statistics are included, also after close."""
    producer = Producer(sink=RecordingSink(), config=config(), channel=FileChannel(tmp_path))
    producer.send("p", "l", LOG)
    producer.flush(PATIENCE)
    assert _read(producer)["channel"]["file"]["segments"] == 1
    producer.close()
    assert _read(producer)["delivered"] == 1
