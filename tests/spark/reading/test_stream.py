"""The reader of a stream, called like Spark calls it, without Spark."""

import json
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from producer import ConfigError
from producer.server import LogHubServer
from producer.server.operations.cursors import encode_cursor
from producer.spark.logstore import LogstoreClient
from producer.spark.reading import admission, default_schema, stream_reader
from producer.spark.reading.ranges import ShardRange
from producer.spark.reading.stream import LogHubStreamReader

from ..conftest import Put, options_of
from .conftest import messages_of

ALL = ReadAllAvailable()


def reader_of(server: LogHubServer, **options: str) -> LogHubStreamReader:
    reader = stream_reader(options_of(server, **({"startingOffsets": "earliest"} | options)), default_schema())
    assert isinstance(reader, LogHubStreamReader)
    return reader


def saved(offset: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def batches(reader: LogHubStreamReader, start: dict[str, Any], limit: Any = None) -> tuple[list[list[str]], Any]:
    """Read micro-batches until nothing is new, and return their messages and the last offset."""
    found = []
    while (end := saved(reader.latestOffset(start, limit or reader.getDefaultReadLimit()))) != start:
        found.append(messages_of(reader, reader.partitions(start, end)))
        start = end
    return found, start


def fill(put: Put, *numbers: int, shard: str = "0") -> None:
    for number in numbers:
        put(f"{number}", shard=shard)


def test_each_micro_batch_has_what_came_since_the_last_one_also_after_a_restart(server: LogHubServer, put: Put) -> None:
    """Each micro-batch has what came since the last one, also after a restart."""
    fill(put, 0, 1)
    reader = reader_of(server)
    start = saved(reader.initialOffset())
    first, start = batches(reader, start)
    fill(put, 2)
    fill(put, 3, shard="1")
    second, start = batches(reader, start)
    fill(put, 4)
    restarted = reader_of(server)
    third, start = batches(restarted, start)
    assert (first, second, third) == ([["0", "1"]], [["2", "3"]], [["4"]])
    assert batches(restarted, start) == ([], start)
    for each in (reader, restarted):
        each.stop()


def test_the_same_offsets_are_the_same_rows(server: LogHubServer, put: Put) -> None:
    """The same offsets give the same rows in every reader, whatever came since."""
    fill(put, 0, 1, 2)
    reader = reader_of(server)
    start = saved(reader.initialOffset())
    end = saved(reader.latestOffset(start, ReadMaxRows(2)))
    fill(put, 3, 4)
    again = reader_of(server)
    assert messages_of(reader, reader.partitions(start, end)) == ["0", "1"]
    assert messages_of(again, again.partitions(start, end)) == ["0", "1"]


def test_without_startingoffsets_a_stream_begins_at_the_end(server: LogHubServer, put: Put) -> None:
    """Without startingOffsets a stream begins at the end."""
    fill(put, 0)
    reader = stream_reader(options_of(server), default_schema())
    start = saved(reader.initialOffset())
    fill(put, 1)
    assert batches(reader, start)[0] == [["1"]]  # type: ignore[arg-type]


def test_with_availablenow_a_stream_stops_at_the_end_of_what_was_there_at_its_start(
    server: LogHubServer, put: Put
) -> None:
    """With availableNow a stream stops at the end of what was there at its start."""
    fill(put, 0, 1, 2, 3, 4)
    reader = reader_of(server)
    start = saved(reader.initialOffset())
    reader.prepareForTriggerAvailableNow()
    fill(put, 5)
    found, start = batches(reader, start, ReadMaxRows(2))
    assert found == [["0", "1"], ["2", "3"], ["4"]]
    assert batches(reader_of(server), start)[0] == [["5"]]


def test_a_shard_of_a_split_is_read_from_its_beginning(server: LogHubServer, put: Put) -> None:
    """A shard that a split creates is read from its beginning."""
    fill(put, 0)
    fill(put, 1, 2, shard="1")
    known = {"0": encode_cursor(0)}
    reader = reader_of(server)
    end = saved(reader.latestOffset(known, ALL))
    assert messages_of(reader, reader.partitions(known, end)) == ["0", "1", "2"]
    assert list(end) == ["0", "1"]
    limited = saved(reader.latestOffset(known, ReadMaxRows(1)))
    assert batches(reader, limited)[1] == end


def test_a_shard_that_is_gone_keeps_its_place(server: LogHubServer, put: Put) -> None:
    """A shard that is no longer listed stays in the offset, and is not read."""
    fill(put, 0)
    start = {"0": encode_cursor(0), "7": "somewhere"}
    reader = reader_of(server)
    end = saved(reader.latestOffset(start, ALL))
    assert end["7"] == "somewhere"
    assert messages_of(reader, reader.partitions(start, end)) == ["0"]


def test_rows_of_a_trigger_are_bounded(server: LogHubServer, put: Put) -> None:
    """No micro-batch exceeds the limit of rows, the shards share it, and each row comes once."""
    for number in range(10):
        put(f"{number} a", f"{number} b", shard="0")
    fill(put, 10, 11, shard="1")
    reader = reader_of(server, maxRowsPerTrigger="6")
    found, _ = batches(reader, saved(reader.initialOffset()))
    assert all(len(batch) <= 6 for batch in found)
    assert len(found) <= 5
    assert {"10", "11"} <= set(found[0])
    rows = [row for batch in found for row in batch]
    assert sorted(rows) == sorted([f"{n} {x}" for n in range(10) for x in "ab"] + ["10", "11"])


def test_a_log_group_larger_than_the_limit_comes_alone(server: LogHubServer, put: Put) -> None:
    """A LogGroup larger than the limit comes alone, and the stream continues."""
    put("a", "b", "c")
    put("d")
    reader = reader_of(server, maxRowsPerTrigger="2")
    assert batches(reader, saved(reader.initialOffset()))[0] == [["a", "b", "c"], ["d"]]


def test_where_a_cursor_is_not_a_number_rows_are_counted_by_requests_for_as_many_loggroups_as_fit(
    server: LogHubServer, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a cursor is not a number, rows are counted by requests for as many LogGroups as fit."""
    for number in range(6):
        put(f"{number} a", f"{number} b")
    monkeypatch.setattr(admission, "is_cursor", lambda _: False)
    reader = reader_of(server, maxRowsPerTrigger="5")
    found, _ = batches(reader, saved(reader.initialOffset()))
    assert [len(batch) for batch in found] == [4, 4, 4]


def test_no_shard_is_always_the_last(server: LogHubServer, put: Put) -> None:
    """With fewer rows a trigger than shards, each shard has its turn."""
    fill(put, *range(5), shard="0")
    fill(put, *range(10, 15), shard="1")
    reader = reader_of(server, maxRowsPerTrigger="1")
    found, _ = batches(reader, saved(reader.initialOffset()))
    assert sorted(found[0] + found[1]) == ["0", "10"]
    assert len(found) == 10


def test_seconds_of_a_trigger_are_bounded(server: LogHubServer, put: Put) -> None:
    """A micro-batch has what was received within the limit of seconds, and an empty period does not stop the stream."""
    for seconds in (0, 1, 60, 61, 500):
        server.clock_offset = seconds
        fill(put, seconds)
    reader = reader_of(server, maxSecondsPerTrigger="30")
    found, _ = batches(reader, saved(reader.initialOffset()))
    assert found == [["0", "1"], ["60", "61"], ["500"]]


@pytest.mark.parametrize("opaque", [False, True])
def test_a_limit_in_seconds_never_goes_beyond_the_end_of_a_query_with_availablenow(
    client: LogstoreClient, put: Put, monkeypatch: pytest.MonkeyPatch, opaque: bool
) -> None:
    """A limit in seconds never goes beyond the end of a query with availableNow."""
    fill(put, 0, 1, 2)
    if opaque:
        monkeypatch.setattr(admission, "position_of", lambda _: None)
    begin, end = {"0": encode_cursor(0)}, {"0": encode_cursor(2)}
    assert admission.advance_by_seconds(client, begin, end, 600) == end


def test_both_limits_hold(server: LogHubServer, put: Put) -> None:
    """With both limits the smaller one decides."""
    for seconds in (0, 60):
        server.clock_offset = seconds
        fill(put, seconds, seconds + 1, seconds + 2)
    reader = reader_of(server, maxSecondsPerTrigger="30", maxRowsPerTrigger="2")
    assert batches(reader, saved(reader.initialOffset()))[0] == [["0", "1"], ["2"], ["60", "61"], ["62"]]


def test_the_progress_says_how_far_there_is_to_go(server: LogHubServer, put: Put) -> None:
    """The progress has the ends of the shards, not of the micro-batch."""
    fill(put, 0, 1, 2)
    reader = reader_of(server, maxRowsPerTrigger="1")
    assert reader.reportLatestOffset() is None
    reader.latestOffset(saved(reader.initialOffset()), reader.getDefaultReadLimit())
    assert reader.reportLatestOffset() == {"0": encode_cursor(3), "1": encode_cursor(0)}


def test_a_used_reader_is_pickled_without_its_connections(server: LogHubServer, put: Put) -> None:
    """A used reader is pickled without its connections."""
    fill(put, 0)
    reader = reader_of(server)
    start = saved(reader.initialOffset())
    end = saved(reader.latestOffset(start, ALL))
    pickler = CloudPickleSerializer()
    there, parts = pickler.loads(pickler.dumps((reader, reader.partitions(start, end))))
    assert messages_of(there, parts) == ["0"]
    assert [type(part) for part in parts] == [ShardRange]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets: is for a batch"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger: must be a whole number, at least 1"),
        ({"maxSecondsPerTrigger": "1h"}, "maxSecondsPerTrigger: must be a whole number of seconds, at least 1"),
        ({"startingOffsets": "soon"}, "startingOffsets: must be earliest"),
    ],
)
def test_a_wrong_option_is_an_error_that_names_it(server: LogHubServer, options: dict[str, str], words: str) -> None:
    """An invalid option is refused with its name when the query starts."""
    with pytest.raises(ConfigError, match=words):
        reader_of(server, **options)
