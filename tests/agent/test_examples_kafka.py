"""The examples that read Kafka topics, with librdkafka's mock broker in this process."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.server import LogHubServer
from tests.support.kafka_clients import QUIET
from tests.support.waiting import eventually

from .sinks.test_objects import S3, s3
from .test_examples import moved, server
from .test_kafka import cluster

__all__ = ["cluster", "s3", "server"]

_TOPICS = ("orders", "payments")
#: A group member whose end the broker notices soon.
_BRISK = '"session.timeout.ms" = "4000"\n"heartbeat.interval.ms" = "300"'


def _deliver(text: str, cluster: str, ready: Callable[[], object], message: str = "of %s") -> None:
    """Have an example's agent read a message of each topic until the condition holds."""
    text = re.sub(r'bootstrap_servers = ".*"', f'bootstrap_servers = "{cluster}"', text)
    producer = Producer({"bootstrap.servers": cluster}, **QUIET)
    for topic in _TOPICS:
        producer.produce(topic, message % topic, key="7")
    assert producer.flush(20) == 0
    agent = Agent(parse_toml(text))
    agent.start()
    try:
        eventually(ready)
    finally:
        assert agent.stop(60)


def test_topics_of_kafka_reach_loghub(tmp_path: Path, server: LogHubServer, cluster: str) -> None:
    """``kafka.toml``, without its password, has topic and key as fields beside the message."""
    text = re.sub(r'"security\.protocol".*?\n\n', f"{_BRISK}\n\n", moved("kafka.toml", tmp_path), flags=re.DOTALL)
    _deliver(text, cluster, lambda: server.count("shop", "events") == 2)
    logs = sorted((log.fields for log in server.logs("shop", "events")), key=lambda fields: str(fields["topic"]))
    assert [(log["topic"], log["key"], log["content"]) for log in logs] == [
        (topic, "7", f"of {topic}") for topic in _TOPICS
    ]


def test_topics_of_kafka_are_objects_by_day_and_topic(
    tmp_path: Path, server: LogHubServer, cluster: str, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``objects.toml`` writes rows of Parquet, with fields and headers as columns, of declared types."""
    monkeypatch.setenv("S3_KEY", s3.storage["key"])
    monkeypatch.setenv("S3_SECRET", s3.storage["secret"])
    s3.files.mkdir("lake")
    more = ", ".join(f'{name} = "{value}"' for name, value in s3.storage.items() if name not in ("key", "secret"))
    text = moved("objects.toml", tmp_path).replace("roll_interval = 600", "roll_interval = 1")
    text = text.replace('"${env:S3_SECRET}" }', f'"${{env:S3_SECRET}}", {more} }}')
    text = text.replace("channels =", f"config = {{ {_BRISK.replace(chr(10), ', ')} }}\nchannels =")

    def objects() -> list[str]:
        s3.files.invalidate_cache()
        return list(s3.files.find("lake/events"))

    # Files being written have other names, and disappear: read only after the agent has ended.
    message = '{"of": "%s", "amount": 2, "items": ["a"]}'
    _deliver(text, cluster, lambda: len({path.rpartition("/")[0] for path in objects()}) == len(_TOPICS), message)
    found = set()
    for path in objects():
        data = s3.files.cat_file(path)
        place = re.fullmatch(r"lake/events/day=\d{4}-\d\d-\d\d/topic=(\w+)/[^/]+", path)
        assert place is not None
        rows = parquet.read_table(io.BytesIO(data)).to_pylist()
        found |= {
            (place[1], row["of"], row["topic"], row["key"], row["amount"], *row["items"]) for row in rows if row["of"]
        }
    assert found == {(topic, topic, topic, "7", 2.0, "a") for topic in _TOPICS}
