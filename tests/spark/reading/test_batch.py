"""The reader of a batch, called like Spark calls it, without Spark."""

import threading

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from producer import ConfigError, LogItem, Producer, ProducerConfig
from producer.reading.errors import LogHubReadError
from producer.server import Limits, LogHubServer
from producer.server.faults import Fault, answer, cut
from producer.spark.reading import batch_reader, default_schema
from producer.spark.reading.ranges import ShardRange
from tests.support.waiting import eventually

from ..conftest import LOGSTORE, PROJECT, Put, options_of, project_of
from .conftest import messages_of, rows_of


def test_fields_time_in_microseconds_topic_source_and_tags_of_every_sent_record_are_read_once(
    server: LogHubServer,
) -> None:
    """Fields, time in microseconds, topic, source and tags of every sent record are read once."""
    config = ProducerConfig(linger_ms=100, batch_count_threshold=7, log_tags={"env": "test"})
    expected = []
    with Producer(project_of(server), config=config) as producer:
        for number in range(100):
            fields = [("n", str(number)), ("text", "é" * number)]
            time = 1_790_000_000 + number
            item = LogItem(fields, time=time, time_ns=number * 1_000_000 + 999)
            topic, source = f"topic {number % 3}", f"10.0.0.{number % 2}"
            producer.send(PROJECT, LOGSTORE, item, topic=topic, source=source)
            expected.append(
                ((1_790_000_000 + number) * 1_000_000 + number * 1000, topic, source, [("env", "test")], fields)
            )
    reader = batch_reader(options_of(server), default_schema())
    rows = rows_of(reader, reader.partitions())
    found = [
        (round(r["__time__"].timestamp() * 1_000_000), r["__topic__"], r["__source__"], r["__tags__"], r["contents"])
        for r in rows
    ]
    assert sorted(found) == sorted(expected)
    assert all(row["__pack_id__"] for row in rows)


def test_a_partition_is_a_shard_between_two_fixed_ends(server: LogHubServer, put: Put) -> None:
    """A partition is a shard between two fixed cursors; later LogGroups are not read."""
    for number in range(5):
        put(f"first {number}")
    put("second", shard="1")
    reader = batch_reader(options_of(server, pullCount="2"), default_schema())
    partitions = reader.partitions()
    put("too late")
    assert [part.shard for part in partitions] == ["0", "1"]
    assert messages_of(reader, partitions) == [*(f"first {number}" for number in range(5)), "second"]


def test_answers_that_the_server_cuts_by_size_are_followed_to_the_end(put: Put) -> None:
    """Answers that the server cuts by size are followed to the end."""
    from tests.server.client import Client, log_group

    with LogHubServer(limits=Limits(pull_bytes=100)) as server, Client(server, project=PROJECT) as client:
        for number in range(20):
            client.put(log_group(f"message {number}"), logstore=LOGSTORE, path="/shards/route", params={"key": "00"})
        reader = batch_reader(options_of(server), default_schema())
        assert len(messages_of(reader, reader.partitions())) == 20


def test_every_log_group_has_its_cursor(server: LogHubServer, put: Put) -> None:
    """The column ``__cursor__`` names the shard and the cursor where a later read may begin."""
    for number in range(3):
        put(f"message {number}")
    reader = batch_reader(options_of(server), default_schema())
    shard, cursor = rows_of(reader, reader.partitions())[1]["__cursor__"].split("/", 1)
    again = batch_reader(
        options_of(server, startingOffsets=f'{{"{shard}": "{cursor}"}}', shards=shard), default_schema()
    )
    assert messages_of(again, again.partitions()) == ["message 1", "message 2"]


def test_offsets_and_shards_limit_the_read(server: LogHubServer, put: Put) -> None:
    """Offsets and shards limit the read."""
    for seconds in (0, 100, 200, 300):
        server.clock_offset = seconds
        put(f"after {seconds} s")
        put(f"other {seconds} s", shard="1")
    received = int(server.log_groups(PROJECT, LOGSTORE)[0].received)
    options = options_of(server, startingOffsets=str(received + 50), endingOffsets=str(received + 250), shards="0")
    reader = batch_reader(options, default_schema())
    assert messages_of(reader, reader.partitions()) == ["after 100 s", "after 200 s"]
    backwards = options | {"startingoffsets": str(received + 250), "endingoffsets": str(received + 50)}
    assert batch_reader(backwards, default_schema()).partitions() == []


def test_a_shard_is_divided_by_time_of_receipt_with_each_log_read_once_and_in_order(
    server: LogHubServer, put: Put
) -> None:
    """A shard is divided by time of receipt, with each log read once and in order."""
    for seconds in range(0, 500, 10):
        server.clock_offset = seconds
        put(f"after {seconds} s")
    put("other", shard="1")
    reader = batch_reader(options_of(server, partitionsPerShard="4"), default_schema())
    partitions = reader.partitions()
    put("too late")
    parts = [messages_of(reader, [part]) for part in partitions]
    assert [part.shard for part in partitions] == ["0", "0", "0", "0", "1"]
    assert [each for part in parts for each in part] == [
        *(f"after {seconds} s" for seconds in range(0, 500, 10)),
        "other",
    ]
    assert all(8 <= len(part) <= 16 for part in parts[:4])


def test_loggroups_received_within_a_second_are_one_partition_and_are_read_once(server: LogHubServer, put: Put) -> None:
    """LogGroups received within a second are one partition, and are read once."""
    for number in range(5):
        put(f"message {number}")
    reader = batch_reader(options_of(server, partitionsPerShard="1000"), default_schema())
    partitions = reader.partitions()
    assert len(partitions) <= 3
    assert messages_of(reader, partitions) == [f"message {number}" for number in range(5)]


def test_no_partition_of_a_shard_is_empty(server: LogHubServer, put: Put) -> None:
    """No partition of a shard is empty, even over minutes without LogGroups."""
    for seconds in (0, 800):
        server.clock_offset = seconds
        put(f"after {seconds} s")
    reader = batch_reader(options_of(server, partitionsPerShard="5"), default_schema())
    assert [messages_of(reader, [part]) for part in reader.partitions()] == [["after 0 s"], ["after 800 s"]]


def test_nothing_to_read_is_an_empty_read(server: LogHubServer, put: Put) -> None:
    """An empty logstore has no partitions, and Spark's empty partition has no rows."""
    put("a message")
    reader = batch_reader(options_of(server, shards="1"), default_schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_pickled_reader_reads_the_same_partitions(server: LogHubServer, put: Put) -> None:
    """A pickled reader reads the same partitions."""
    put("a message")
    pickler = CloudPickleSerializer()
    reader = batch_reader(options_of(server), default_schema())
    partitions = reader.partitions()
    there, parts = pickler.loads(pickler.dumps((reader, partitions)))
    assert messages_of(there, parts) == ["a message"]


def nth_pull_fails(numbers: set[int], fault: Fault) -> Fault:
    """Return a fault for the pulls with these numbers."""
    count = iter(range(1_000_000))
    return lambda request: fault(request) if request.query.get("type") == "log" and next(count) in numbers else None


@pytest.mark.parametrize("fault", [answer(500, "InternalServerError"), cut("after_body"), cut("stored")])
def test_a_server_that_fails_in_the_middle_costs_nothing(server: LogHubServer, put: Put, fault: Fault) -> None:
    """A server that fails in the middle loses and duplicates no rows."""
    for number in range(10):
        put(f"message {number}")
    server.faults.add(nth_pull_fails({1, 2, 5}, fault))
    reader = batch_reader(options_of(server, pullCount="2"), default_schema())
    assert messages_of(reader, reader.partitions()) == [f"message {number}" for number in range(10)]


def test_a_server_that_stays_down_is_an_error(server: LogHubServer, put: Put) -> None:
    """A server that stays down fails the read."""
    for number in range(10):
        put(f"message {number}")
    reader = batch_reader(options_of(server, pullCount="2", retries="2"), default_schema())
    server.faults.add(nth_pull_fails(set(range(3, 1000)), answer(503, "ServerBusy")))
    with pytest.raises(LogHubReadError, match=r"PullLogs of shard 0 at .* after 3 attempts"):
        messages_of(reader, reader.partitions())


def test_a_shard_that_ends_before_its_planned_end_fails_the_read_because_records_are_gone(
    server: LogHubServer, put: Put
) -> None:
    """A shard that ends before its planned end fails the read, because records are gone."""
    put("a message")
    reader = batch_reader(options_of(server), default_schema())
    with pytest.raises(LogHubReadError, match="ends at cursor MQ=="):
        messages_of(reader, [ShardRange("0", "MA==", "NQ==")])


def test_a_read_that_ends_early_stops_its_thread(server: LogHubServer, put: Put) -> None:
    """A read that ends early stops its thread."""
    for number in range(10):
        put(f"message {number}")
    reader = batch_reader(options_of(server, pullCount="1"), default_schema())
    batches = reader.read(reader.partitions()[0])
    next(batches)
    batches.close()  # type: ignore[attr-defined]

    def left() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("loghub-reader")]

    eventually(lambda: not left(), "the thread, and the one that watched its requests, have ended")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "x"}, "startingoffset: unknown option; did you mean startingOffsets"),
        ({"startingOffsets": "latest"}, "must not be latest in a batch"),
        ({"endingOffsets": "earliest"}, "must not be earliest"),
        ({"maxRowsPerTrigger": "5"}, "maxRowsPerTrigger: is for readStream"),
        ({"maxSecondsPerTrigger": "5"}, "maxSecondsPerTrigger: is for readStream"),
        ({"pullCount": "0"}, "pullCount: must be a whole number from 1 to 1000, got '0'"),
        ({"pullCount": "1001"}, "from 1 to 1000"),
        ({"mode": "DROPMALFORMED"}, "mode: must be one of PERMISSIVE, FAILFAST"),
        ({"shards": "a"}, "shards: must be numbers of shards"),
        ({"shards": "0,7"}, "shards: must be among the logstore's shards 0, 1, got '7'"),
        ({"logstore": ""}, "logstore: is required"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(
    server: LogHubServer, put: Put, options: dict[str, str], words: str
) -> None:
    """An invalid option is refused with its name when the read is planned."""
    put("a message")
    with pytest.raises(ConfigError, match=words):
        batch_reader(options_of(server, **options), default_schema()).partitions()


def test_the_environment_may_sign(server: LogHubServer, put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key in the options the environment's is used; without that, an error says so at once."""
    put("a message")
    options = {name: value for name, value in options_of(server).items() if not name.startswith("access")}
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
    monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)
    reader = batch_reader(options, default_schema())
    assert messages_of(reader, reader.partitions()) == ["a message"]
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_SECRET")
    with pytest.raises(ConfigError, match="accessKeyId: must be given, or LOGHUB_ACCESS_KEY_ID"):
        batch_reader(options, default_schema())


def test_the_schema_is_checked(server: LogHubServer) -> None:
    """A column that cannot be read is refused when the reader is made."""
    with pytest.raises(ConfigError, match="__time__ must be timestamp"):
        batch_reader(options_of(server), StructType([StructField("__time__", StringType())]))
    assert batch_reader(options_of(server), StructType([StructField("n", LongType())])) is not None
