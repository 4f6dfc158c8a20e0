"""Columns and targets are checked before a job begins."""

from collections.abc import Iterator

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from producer import EnvironmentCredentials, ProducerConfig, ProjectConfig
from producer.model.errors import ConfigError
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.spark.check import check_target
from producer.spark.options import Target
from producer.spark.writing import writers
from producer.spark.writing.options import Columns
from producer.spark.writing.planning import check_schema
from producer.testing import ManualClock
from tests.server.client import Client
from tests.spark.conftest import LOGSTORE, PROJECT

SCHEMA = (
    StructType()
    .add("ts", TimestampType())
    .add("ntz", TimestampNTZType())
    .add("seconds", LongType())
    .add("level", StringType())
    .add("short", VarcharType(10))
    .add("fields", MapType(StringType(), LongType()))
    .add("by_number", MapType(LongType(), StringType()))
)


SCHEMA_OF_TEXT = StructType().add("text", StringType())


def test_fitting_columns_are_accepted() -> None:
    """Each role accepts columns of its types."""
    check_schema(SCHEMA, Columns(time="ts", topic="level", source="short", shard_hash="level", contents="fields"))
    check_schema(SCHEMA, Columns(time="seconds"))


def test_a_missing_column_is_refused_with_the_option_and_the_closest_names() -> None:
    """A missing column is refused with the option and the closest names."""
    with pytest.raises(ConfigError, match=r"topicColumn: must be a column of the DataFrame; did you mean level"):
        check_schema(SCHEMA, Columns(topic="levle"))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (Columns(time="level"), "timeColumn: .* level is a string"),
        (Columns(time="ntz"), "timeColumn: .*time zone.* ntz is a timestamp_ntz"),
        (Columns(topic="seconds"), "topicColumn: .* seconds is a bigint"),
        (Columns(contents="level"), "contentsColumn: .*map.* level is a string"),
        (Columns(contents="by_number"), "contentsColumn: .*map of text"),
    ],
)
def test_wrong_type_names_option_column_and_type(columns: Columns, words: str) -> None:
    """A column of a wrong type is refused with the option, the column and the type."""
    with pytest.raises(ConfigError, match=words):
        check_schema(SCHEMA, columns)


@pytest.mark.parametrize(
    "kind",
    [
        DayTimeIntervalType(),
        ArrayType(DayTimeIntervalType()),
        StructType().add("inner", DayTimeIntervalType()),
        MapType(StringType(), DayTimeIntervalType()),
    ],
)
def test_column_without_text_is_refused(kind: DataType) -> None:
    """A column that cannot become text, also a nested one, is refused with its path."""
    with pytest.raises(ConfigError, match=r"column length(\.inner)?: .*interval.* cannot become text"):
        check_schema(StructType().add("length", kind), Columns())


@pytest.fixture
def target() -> Iterator[tuple[LogHubServer, Target]]:
    """Start a server with one logstore, which creates no others."""
    with LogHubServer(auto_create=False) as server, Client(server, project="p") as client:
        client.post_json("/", b'{"projectName": "p", "description": ""}')
        client.post_json("/logstores", b'{"logstoreName": "l", "ttl": 1, "shardCount": 2}')
        server.clear_requests()
        yield server, target_at(server)


def target_at(server: LogHubServer, project: str = "p", logstore: str = "l", secret: str | None = None) -> Target:
    config = ProjectConfig(
        project,
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=secret or server.access_key_secret,
    )
    return Target(config, logstore)


QUICK = ProducerConfig(base_retry_backoff_ms=1)


def fault(target: Target, *, patient: bool = False) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_target(target, QUICK, patient=patient)
    return caught.value


def test_reachable_logstore_passes(target: tuple[LogHubServer, Target]) -> None:
    """A valid target passes."""
    check_target(target[1], QUICK, patient=False)


def test_wrong_credentials_name_the_option(target: tuple[LogHubServer, Target]) -> None:
    """A wrong key id or secret is refused with the option, without its value."""
    server = target[0]
    wrong = fault(target_at(server, secret="hunter2"))
    assert wrong.name == "accessKeySecret"
    assert "hunter2" not in str(wrong)
    config = ProjectConfig("p", endpoint=server.endpoint, access_key_id="nobody", access_key_secret="x")
    assert fault(Target(config, "l")).name == "accessKeyId"


def test_missing_project_and_logstore_name_the_option(target: tuple[LogHubServer, Target]) -> None:
    """A missing project or logstore is refused with the option."""
    missing = fault(target_at(target[0], logstore="nonesuch"))
    assert (missing.name, missing.value) == ("logstore", "nonesuch")
    assert fault(target_at(target[0], project="nonesuch")).name == "project"


def test_unreachable_endpoint_names_the_option(target: tuple[LogHubServer, Target]) -> None:
    """An unreachable endpoint fails a batch write at once; a streaming query continues."""
    server, there = target
    server.stop()
    assert fault(there).name == "endpoint"
    check_target(there, QUICK, patient=True)


def test_key_that_may_not_list_shards_may_write(target: tuple[LogHubServer, Target]) -> None:
    """A key that may write, but not list shards, passes."""
    server, there = target
    server.faults.add(answer(403, "Unauthorized", "no permission to list shards"))
    server.faults.add(answer(403, "AccessDenied", "no permission to list shards"))
    check_target(there, QUICK, patient=False)


def test_a_busy_server_does_not_fail_the_job(target: tuple[LogHubServer, Target]) -> None:
    """A busy server does not fail the job."""
    server, there = target
    server.faults.add(answer(503, "ServerBusy"))
    check_target(there, QUICK, patient=False)


def test_without_credentials_on_the_driver_nothing_is_checked(
    target: tuple[LogHubServer, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without credentials on the driver nothing is checked."""
    monkeypatch.delenv("LOGHUB_ACCESS_KEY_ID", raising=False)
    server = target[0]
    check_target(
        Target(ProjectConfig("p", endpoint=server.endpoint, credentials=EnvironmentCredentials()), "l"),
        QUICK,
        patient=False,
    )
    assert server.requests == []


def test_target_of_a_stream_is_checked_once_while_micro_batches_follow(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target of a stream is checked once, and again after a pause."""
    clock = ManualClock()
    monkeypatch.setattr(writers, "_checked", writers._Checked(clock))
    asked = []
    server.faults.add(asked.append, operation="ListShards")
    options = {
        "endpoint": server.endpoint,
        "project": PROJECT,
        "logstore": LOGSTORE,
        "accessKeyId": server.access_key_id,
        "accessKeySecret": server.access_key_secret,
    }
    asked_for = []

    def make(**more: str) -> None:
        writers.LogHubStreamWriter(options | more, SCHEMA_OF_TEXT, overwrite=False)
        asked_for.append(len(asked))

    for _ in range(3):
        make()
        clock.advance(40)
    make(topic="other")
    clock.advance(61)
    make()
    for _ in range(2):  # each batch job checks
        writers.LogHubWriter(options, SCHEMA_OF_TEXT, overwrite=False)
        asked_for.append(len(asked))
    assert asked_for == [1, 1, 1, 2, 3, 4, 5]


def test_a_failed_check_is_repeated(server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed check is repeated."""
    monkeypatch.setattr(writers, "_checked", writers._Checked(ManualClock()))
    options = {"endpoint": server.endpoint, "project": PROJECT, "logstore": LOGSTORE}
    options |= {"accessKeyId": server.access_key_id, "accessKeySecret": "wrong"}
    for _ in range(2):
        with pytest.raises(ConfigError, match="accessKeySecret"):
            writers.LogHubStreamWriter(options, SCHEMA_OF_TEXT, overwrite=False)
