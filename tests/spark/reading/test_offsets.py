"""startingOffsets and endingOffsets."""

import pytest

from producer import ConfigError
from producer.reading.errors import LogHubReadError
from producer.server import LogHubServer
from producer.spark.logstore import LogstoreClient
from producer.spark.reading.offsets import parse_offsets

from ..conftest import Put

START = 1_790_000_000


@pytest.fixture
def three(server: LogHubServer, client: LogstoreClient, put: Put) -> dict[int, str]:
    """Put LogGroups received 0, 100 and 200 seconds after the first one, and return their cursors by time of
    receipt.
    """
    cursors = {}
    for seconds in (0, 100, 200):
        server.clock_offset = seconds
        put(f"after {seconds} s")
    cursor = client.cursor("0", "begin")
    for _ in range(3):
        cursors[client.cursor_time("0", cursor)] = cursor
        cursor = client.pull_columns("0", cursor, 1).next_cursor
    return cursors


def test_a_time_is_the_first_log_group_not_before_it(client: LogstoreClient, three: dict[int, str]) -> None:
    """A time means the first LogGroup not before it, as Unix seconds and with or without a zone."""
    from datetime import UTC, datetime

    second = sorted(three)[1]
    time = datetime.fromtimestamp(second, UTC)
    for text in (str(second), time.isoformat(), time.replace(tzinfo=None).isoformat(" "), f" {second - 50} "):
        assert parse_offsets("startingOffsets", text).resolve(client, ["0"]) == {"0": three[second]}, text


def test_each_shard_may_have_its_own_place(client: LogstoreClient, three: dict[int, str]) -> None:
    """JSON gives each shard a cursor, a word or Unix seconds."""
    first, second, _ = sorted(three)
    text = f'{{"0": "{three[second]}", "1": "latest"}}'
    assert parse_offsets("startingOffsets", text).resolve(client, ["0", "1"]) == {
        "0": three[second],
        "1": client.cursor("1", "end"),
    }
    text = f'{{"0": {second}, "1": "Earliest"}}'
    assert parse_offsets("endingOffsets", text).resolve(client, ["0", "1"])["0"] == three[second]
    assert parse_offsets("endingOffsets", "EARLIEST").resolve(client, ["0"])["0"] == three[first]


@pytest.mark.parametrize(
    "text",
    ["soon", "", "-5", "0", "99999999999", "2026-13-01", "{", '{"a": "M"}', '{"0": 1.5}', '{"0": ""}', '{"0": true}'],
)  # fmt: skip
def test_an_invalid_text_is_refused_with_the_options_name_and_its_rule(text: str) -> None:
    """An invalid text is refused with the option's name and its rule."""
    with pytest.raises(ConfigError, match=r"startingOffsets: must be earliest, latest, Unix seconds"):
        parse_offsets("startingOffsets", text)


def test_every_shard_must_have_a_place(client: LogstoreClient) -> None:
    """JSON must name every shard that is read, and no other."""
    offsets = parse_offsets("startingOffsets", '{"0": "earliest"}')
    with pytest.raises(ConfigError, match=r"must name every shard that is read.*missing: 1"):
        offsets.resolve(client, ["0", "1"])
    with pytest.raises(ConfigError, match=r"only shards that are read \(1\), each once, got '0'"):
        offsets.resolve(client, ["1"])


def test_a_cursor_that_the_server_does_not_know_is_an_error_at_once(client: LogstoreClient, put: Put) -> None:
    """A cursor that the server does not know is refused when the read is planned."""
    put("a message")
    with pytest.raises(LogHubReadError, match=r"InvalidCursor.*of another logstore, or older"):
        parse_offsets("startingOffsets", '{"0": "!!!"}').resolve(client, ["0"])
