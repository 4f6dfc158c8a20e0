"""The source ``loghub``, with the embedded server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer import Producer, ProjectConfig
from producer.agent import AgentConfigError, Stop
from producer.agent.config.options import read_options
from producer.agent.flow.channel import BatchChannel
from producer.agent.sources import loghub as module
from producer.agent.testing import RecordingOutlet
from producer.model.credentials import Credentials, StaticCredentials
from producer.reading.errors import AnswerTooLargeError
from producer.server import LogHubServer
from producer.testing import ManualClock
from tests.agent.components import made
from tests.agent.doubles import context, file_channel, ledger_in, memory_channel, opened, taken
from tests.agent.sources.putting import reading
from tests.support.waiting import eventually


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[LogHubServer]:
    with LogHubServer(shards=getattr(request, "param", 1)) as made_server:
        yield made_server


def account_of(server: LogHubServer) -> ProjectConfig:
    key = Credentials(access_key_id=server.access_key_id, access_key_secret=server.access_key_secret)
    return ProjectConfig("p", endpoint=server.endpoint, credentials=StaticCredentials(credentials=key))


def send(server: LogHubServer, *logs: dict[str, str], **of_the_group: Any) -> None:
    with Producer(account_of(server)) as producer:
        stream = producer.stream("p", "l", **of_the_group)
        for log in logs:
            stream.send(log)
            producer.flush(timeout=20)


def target_in(server: LogHubServer, **options: Any) -> dict[str, Any]:
    return {
        "project": "p",
        "logstore": "l",
        "endpoint": server.endpoint,
        "poll_delay": 0.01,
        "access_key_id": server.access_key_id,
        "access_key_secret": server.access_key_secret,
        **options,
    }


def _holds(channel: BatchChannel, count: int) -> None:
    eventually(lambda: channel.held >= count, f"{count} events")


@pytest.mark.parametrize("server", [2], indirect=True)
def test_all_shards_are_read_each_loggroup_once_a_second_run_continues_with_what_was_not_delivered(
    tmp_path: Path, server: LogHubServer
) -> None:
    """All shards are read, each LogGroup once; a second run continues with what was not delivered."""
    send(server, *({"content": str(number)} for number in range(6)))
    with opened(file_channel(tmp_path)) as channel, reading("loghub", tmp_path, {"c": channel}, **target_in(server)):
        _holds(channel, 6)
    send(server, *({"content": str(number)} for number in range(6, 9)))
    with opened(file_channel(tmp_path)) as channel:
        with reading("loghub", tmp_path, {"c": channel}, **target_in(server)):
            _holds(channel, 9)
        assert sorted(taken(channel)) == [b"%d" % number for number in range(9)]


def test_fields_time_topic_and_tags_are_headers(tmp_path: Path, server: LogHubServer) -> None:
    """A log's fields become headers, its LogGroup's have LogHub's names; without the body's field the body is JSON."""
    own = {"content": "text", "level": "INFO", "timestamp": "x"}
    send(server, own, {"a": "b"}, topic="t", source="s", tags={"n": "v"})
    with opened(memory_channel(tmp_path)) as channel:
        with reading("loghub", tmp_path, {"c": channel}, **target_in(server)):
            _holds(channel, 2)
        taking = channel.take(10, 1 << 20, 0)
        assert taking is not None
        events = [(dict(headers), body) for batch in taking.batches for headers, body in batch.events()]
        taking.commit()
    assert all(int(headers.pop("timestamp")) > 1_600_000_000_000 for headers, _ in events)
    assert all(headers.pop("__tag__:__pack_id__") for headers, _ in events)
    group = {"__topic__": "t", "__source__": "s", "__tag__:n": "v"}
    assert ({**group, "level": "INFO", "field_timestamp": "x"}, b"text") in events
    assert (group, b'{"a": "b"}') in events


def test_a_channel_that_is_behind_gets_its_missing_logs_and_the_other_none_twice(
    tmp_path: Path, server: LogHubServer
) -> None:
    """A channel that is behind gets its missing logs, and the other none twice, since batches end at its position."""
    target = target_in(server, shards=[0])
    with opened(file_channel(tmp_path, "a")) as a, opened(file_channel(tmp_path, "b")) as b:
        _fill(server, 3)
        with reading("loghub", tmp_path, {"a": a, "b": b}, **target):
            _holds(b, 3)
            b.capacity = 3
            _fill(server, 2)
            _holds(a, 4)  # the source waits for b before the second log, if it comes in a LogGroup of its own
        b.capacity = None
        with reading("loghub", tmp_path, {"a": a, "b": b}, **target):
            _holds(a, 5)
            _holds(b, 5)
        assert [len(taken(each)) for each in (a, b)] == [5, 5]


def _fill(server: LogHubServer, count: int) -> None:
    send(server, *({"content": "x"} for _ in range(count)))


def test_with_start_end_existing_logs_are_skipped_and_logs_sent_between_runs_are_read(
    tmp_path: Path, server: LogHubServer
) -> None:
    """With start = end existing logs are skipped, and logs sent between runs are read."""
    _fill(server, 3)
    target = target_in(server, start="end")
    with opened(file_channel(tmp_path)) as channel:
        with reading("loghub", tmp_path, {"c": channel}, **target):
            eventually(lambda: len(ledger_in(channel).names()) == 1, "the shard's position")
        send(server, {"content": "new"})
        with reading("loghub", tmp_path, {"c": channel}, **target):
            _holds(channel, 1)
        assert taken(channel) == [b"new"]


def test_batches_are_of_whole_loggroups(tmp_path: Path, server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches end with a LogGroup and have a limited size, even if the answer is large."""
    monkeypatch.setattr(module, "_BATCH_BYTES", 1)
    _fill(server, 4)
    with opened(memory_channel(tmp_path)) as channel:
        with reading("loghub", tmp_path, {"c": channel}, **target_in(server, shards=[0])):
            _holds(channel, 4)
        assert channel.stats().size == 4


@pytest.mark.parametrize("wrong", [{"start": "yesterday"}, {"groups": 1001}, {"endpoint": ""}])
def test_an_invalid_option_is_refused_before_the_start(wrong: dict[str, Any]) -> None:
    """An invalid option is refused before the start."""
    given = {"project": "p", "logstore": "l", "endpoint": "http://x", "access_key_id": "i", "access_key_secret": "s"}
    with pytest.raises(AgentConfigError, match=next(iter(wrong))):
        made("sources", "loghub", **{**given, **wrong})
    made("sources", "loghub", **given, start="2026-01-31T08:00:00+08:00")


def test_an_answer_above_a_quarter_of_max_memory_is_requested_with_fewer_loggroups(
    tmp_path: Path, server: LogHubServer
) -> None:
    """An answer above a quarter of ``max_memory`` is requested with fewer LogGroups, in order and without repeats."""
    send(server, *({"content": f"{number}" + "x" * 90_000} for number in range(4)))
    with opened(memory_channel(tmp_path)) as channel:
        with reading("loghub", tmp_path, {"c": channel}, **target_in(server, shards=[0], max_memory=1 << 20)):
            _holds(channel, 4)
        assert [body[:1] for body in taken(channel)] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ({"content": "x" * 300_000}, AnswerTooLargeError),
        ({f"field {number}": "" for number in range(2000)}, module.LogGroupTooLargeError),
    ],
    ids=["answer", "events"],
)
def test_a_loggroup_that_is_too_large_raises_an_error_before_it_is_decompressed_or_parsed(
    log: dict[str, str], error: type[Exception], tmp_path: Path, server: LogHubServer
) -> None:
    """A LogGroup that is too large raises an error before it is decompressed or parsed."""
    send(server, log)
    given = target_in(server, shards=[0], max_memory=1 << 20)
    options = read_options(module.LogHubSource.Options, given, "sources.s")
    with pytest.raises(error, match=r"raise its limit|raise max_memory"):
        module.LogHubSource(options, context(tmp_path)).run(RecordingOutlet(), Stop())


def test_if_loghub_skips_deleted_loggroups_the_source_continues_after_them(tmp_path: Path) -> None:
    """If LogHub skips deleted LogGroups the source continues after them."""

    class Passing:
        def pull(self, _shard: str, number: int, _count: int) -> tuple[list[bytes], int]:
            return [], max(number, 5)

    options = module.LogHubSource.Options(
        project="p", logstore="l", endpoint="http://127.0.0.1:1", access_key_id="a", access_key_secret="b", shards=(0,)
    )
    logstore: Any = Passing()
    shards = module.OwnShards(options, logstore, "begin", ManualClock())
    pulling = module._Pulling(options, logstore, shards, RecordingOutlet(), Stop())
    pulling._next["0"], pulling._stops["0"] = 0, []
    assert pulling._advance("0")
    assert not pulling._advance("0")
