"""write_partition sends Python rows of any kind with the values of ``send``."""

from collections import namedtuple
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import Row

from producer.model.errors import ConfigError, InvalidArgumentError
from producer.server import LogHubServer
from producer.spark import write_partition
from producer.spark.errors import DeliveryFailedError
from tests.spark.writing.kit import LOGSTORE, POISON, PROJECT, target

Point = namedtuple("Point", "x y")


def send(server: LogHubServer, rows: Iterable[Any], **options: str) -> None:
    write_partition({**target(server), **options})(rows)


def held(server: LogHubServer) -> list[dict[str, str]]:
    return sorted((dict(log.contents) for log in server.logs(PROJECT, LOGSTORE)), key=str)


def test_rows_of_every_kind_may_stand_in_one_partition(server: LogHubServer) -> None:
    """Rows, mappings and named tuples with changing fields arrive with their own values."""
    send(server, [Point(1, 2), {"x": 3, "y": 4}, Point(5, 6), Row(x=7, y=Row(a=1)), {"z": [1, None]}])
    assert held(server) == sorted(
        [
            {"x": "1", "y": "2"},
            {"x": "3", "y": "4"},
            {"x": "5", "y": "6"},
            {"x": "7", "y": '{"a":1}'},
            {"z": "[1,null]"},
        ],
        key=str,
    )


@pytest.mark.parametrize("guarantee", ["atLeastOnce", "exactlyOnce"])
def test_a_topic_that_is_missing_at_first_and_a_value_whose_type_changes_lose_no_row(
    server: LogHubServer, guarantee: str
) -> None:
    """A topic that is missing at first, and a value whose type changes, lose no row."""
    rows = [{"n": n, "t": None if n < 5000 else "late", "v": None if n < 4500 else n / 2} for n in range(6000)]
    more = {"deliveryGuarantee": guarantee, "runId": "r"} if guarantee == "exactlyOnce" else {}
    send(server, rows, topic="early", topicColumn="t", **more)
    topics = [log.topic for log in server.logs(PROJECT, LOGSTORE)]
    assert (topics.count("early"), topics.count("late")) == (5000, 1000)


def test_contents_are_fields(server: LogHubServer) -> None:
    """A mapping in contentsColumn becomes fields."""
    send(server, [{"n": 1, "fields": {"a": 1.5, "b": None}}, {"n": 2, "fields": None}], contentsColumn="fields")
    assert held(server) == [{"n": "1", "a": "1.5"}, {"n": "2"}]


def test_misspelt_column_fails_the_task_whatever_is_done_with_rows(server: LogHubServer) -> None:
    """A misspelt column fails the task, and drops no row."""
    with pytest.raises(DeliveryFailedError, match="topic_column: there is no column 'topik'"):
        send(server, [{"n": 1}], topicColumn="topik", onFailure="drop")


def test_a_value_that_is_not_valid_text_is_refused_with_its_field(server: LogHubServer) -> None:
    """A value that is not valid text is refused with its field."""
    with pytest.raises(InvalidArgumentError, match=r"field 'n'.*not valid Unicode"):
        send(server, [{"n": "\ud800"}])


def test_dead_letters_of_changing_rows_can_be_read_back(strict: LogHubServer, tmp_path: Path) -> None:
    """Dead letters of changing rows, also with our names, can be read back."""
    rows = [{"n": 1, "pad": POISON}, {"other": POISON}, {"_row": "mine", "pad": POISON}]
    send(strict, rows, onFailure="deadletter", deadLetterPath=str(tmp_path))
    tables = [pyarrow.parquet.read_table(path) for path in tmp_path.glob("*.parquet")]
    assert sorted(row for table in tables for row in table.column("_row").to_pylist()) == [0, 1, 2]
    assert [table.column("_row_").to_pylist() for table in tables if "_row_" in table.column_names] == [["mine"]]


def test_exactly_once_needs_a_name(server: LogHubServer) -> None:
    """exactlyOnce needs a runId in write_partition."""
    with pytest.raises(ConfigError, match="runId: is required"):
        write_partition({**target(server), "deliveryGuarantee": "exactlyOnce"})
