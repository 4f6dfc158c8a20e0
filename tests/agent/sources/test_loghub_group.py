"""The source ``loghub`` in a consumer group, with the embedded server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from producer.agent import AgentConfigError
from producer.agent.events.batch import Position
from producer.agent.flow.channel import BatchChannel
from producer.agent.sources.loghub_group import Membership
from producer.reading.consumer_group import ConsumerGroup
from producer.reading.signed_client import SignedClient
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.testing import ManualClock
from producer.wire.cursors import cursor_at
from tests.agent.components import made
from tests.agent.doubles import file_channel, is_safe, ledger_in, memory_channel, opened, taken
from tests.agent.sources.putting import reading
from tests.agent.sources.test_loghub import account_of, send, target_in
from tests.support.waiting import Call, eventually

_GROUP = {"group": "g", "group_timeout": 1, "poll_delay": 0.05}


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer(shards=4) as made_server:
        send(made_server, *_logs(1))  # creates the logstore
        yield made_server


def _logs(count: int, first: int = 0) -> list[dict[str, str]]:
    return [{"content": str(number)} for number in range(first, first + count)]


@pytest.fixture
def group(server: LogHubServer) -> Iterator[ConsumerGroup]:
    account = account_of(server)
    with SignedClient(account, "p/l", names={}) as client:
        yield ConsumerGroup(client, "l", "g", "other")


class _Agent:
    """A source that reads into a channel of its own, until it is closed."""

    def __init__(self, folder: Path, server: LogHubServer, channel: BatchChannel, **options: Any) -> None:
        self._ends = ExitStack()
        self._ends.enter_context(opened(channel))
        self.channel = channel
        wanted = target_in(server, **{**_GROUP, **options})
        self.call: Call = self._ends.enter_context(reading("loghub", folder, {"c": channel}, **wanted))

    @property
    def count(self) -> int:
        return self.channel.counters.get("EventPutSuccessCount")

    def __enter__(self) -> _Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()


def test_two_members_read_each_log_once(tmp_path: Path, server: LogHubServer) -> None:
    """Two members read each log once; after the group's timeout the shards of a dead member go to the other."""
    send(server, *_logs(39, 1))
    with _Agent(tmp_path / "a", server, file_channel(tmp_path / "a")) as a:
        eventually(lambda: a.count == 40, "all logs")
        with _Agent(tmp_path / "b", server, file_channel(tmp_path / "b")) as b:
            eventually(lambda: len(ledger_in(b.channel).names()) == 2, "half of the shards for each")
            send(server, *_logs(60, 40))
            eventually(lambda: a.count + b.count >= 100, "the new logs")
            assert a.count > 40 < b.count + 40
            both = taken(a.channel)
            taken_of_a = len(both)
            both += taken(b.channel)
        send(server, *_logs(60, 100))
        eventually(lambda: a.count + len(both) - taken_of_a >= 160, "those of the shards that the other had")
        both += taken(a.channel)
    assert sorted(both, key=int) == [b"%d" % number for number in range(160)]


def test_checkpoints_are_saved_once_a_file_channel_has_the_logs(tmp_path: Path, server: LogHubServer) -> None:
    """Checkpoints are saved once a file channel has the logs, at the latest at the end of the source."""
    with _Agent(tmp_path / "a", server, file_channel(tmp_path / "a")) as a:
        eventually(lambda: a.count == 1, "the log")
    send(server, *_logs(3, 1))
    with _Agent(tmp_path / "b", server, file_channel(tmp_path / "b")) as b:
        eventually(lambda: b.count >= 3, "the other logs")
        assert sorted(taken(b.channel)) == [b"1", b"2", b"3"]


def test_no_checkpoint_is_saved_for_logs_that_are_only_in_a_memory_channel_until_they_are_delivered(
    tmp_path: Path, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint is saved for logs that are only in a memory channel, until they are delivered."""
    told, save = list[Mapping[str, str]](), Membership.save

    def noted(self: Membership, cursors: Mapping[str, str], *, at_once: bool = False) -> None:
        told.append(cursors)
        save(self, cursors, at_once=at_once)

    monkeypatch.setattr(Membership, "save", noted)
    with _Agent(tmp_path, server, memory_channel(tmp_path)) as agent:
        eventually(lambda: agent.count == 1, "the log")
        (shard,) = {name.removeprefix("s/shard-") for name in ledger_in(agent.channel).names() if _read(agent, name)}
        looks = len(told)
        eventually(lambda: len(told) > looks + 2, "further looks")
        (before,) = {each[shard] for each in told if shard in each}
        taken(agent.channel)
        eventually(lambda: told[-1][shard] != before, "a new checkpoint")


def _read(agent: _Agent, name: str) -> bool:
    return not is_safe(agent.channel, name)


def test_a_member_uses_the_endpoint_that_answers(tmp_path: Path, server: LogHubServer) -> None:
    """Of several endpoints, the first of which is away, a member of a group joins, reads and saves at the second."""
    send(server, *_logs(20, 1))
    two = {"endpoint": "", "endpoints": ["http://127.0.0.1:1", server.endpoint], "retries": 0}
    with _Agent(tmp_path, server, file_channel(tmp_path), **two) as agent:
        eventually(lambda: agent.count == 21, "all logs")


def test_a_new_group_may_begin_at_the_end(tmp_path: Path, server: LogHubServer, group: ConsumerGroup) -> None:
    """A new group with start = end skips existing logs; a shard without a checkpoint is read from its begin."""
    send(server, *_logs(20, 1))
    with _Agent(tmp_path / "a", server, file_channel(tmp_path / "a"), start="end") as a:
        eventually(lambda: len(ledger_in(a.channel).names()) == 4, "each shard's position")
        assert len(group.checkpoints()) == 4
        send(server, {"content": "new"})
        eventually(lambda: a.count, "the new log")
        assert taken(a.channel) == [b"new"]
    group.save("0", "", force=True)  # like a shard made by a split
    with _Agent(tmp_path / "b", server, file_channel(tmp_path / "b"), start="end") as b:
        eventually(lambda: b.count, "the logs of that shard")


def test_a_member_whose_channel_is_full_releases_its_shards_to_the_others(tmp_path: Path, server: LogHubServer) -> None:
    """A member whose channel is full releases its shards to the others."""
    send(server, *_logs(40, 1))
    full = memory_channel(tmp_path / "a", capacity=1, keep_alive=0.05)
    full.put(_one_event())
    with _Agent(tmp_path / "a", server, full) as a:
        eventually(
            lambda: any(each.operation == "PullLogs" for each in server.requests), "the first to have all shards"
        )
        with _Agent(tmp_path / "b", server, file_channel(tmp_path / "b")) as b:
            eventually(lambda: len(ledger_in(b.channel).names()) >= 2, "shards for the other")
            assert b.count
        assert a.channel.held == 1


def _one_event() -> Any:
    from producer.agent.events.batch import EventBatch

    return EventBatch.of_lines(b"x\n")


def test_a_member_without_an_answer_for_the_timeout_treats_its_shards_as_lost_as_loghub_does(
    server: LogHubServer, group: ConsumerGroup
) -> None:
    """A member without an answer for the timeout treats its shards as lost, as LogHub does."""
    clock = ManualClock()
    with Membership(group, group, 30, clock) as membership:
        membership.join(dict)
        assert membership.wanted() == {"0", "1", "2", "3"}
        server.faults.add(answer(400, "ParameterInvalid"), operation="HeartBeat")
        clock.advance(29)
        assert len(membership.wanted()) == 4
        clock.advance(1)
        assert not membership.wanted()


def test_a_heartbeat_that_takes_long_counts_from_its_begin() -> None:
    """The timeout counts from the begin of a heartbeat, when LogHub may have received it."""
    clock = ManualClock()

    class Slow:
        def heartbeat(self, _held: object) -> list[str]:
            clock.advance(0.9)
            return ["0"]

    group: Any = Slow()
    member = Membership(group, group, 1, clock)
    member._beat()
    assert member.wanted() == {"0"}
    clock.advance(0.2)
    assert member.wanted() == frozenset()


def test_a_shard_that_another_member_has_is_not_saved(
    server: LogHubServer, group: ConsumerGroup, caplog: pytest.LogCaptureFixture
) -> None:
    """If another member has the shard, saving a checkpoint logs a warning, and the source continues."""
    with Membership(group, group, 30, SystemClock()) as membership:
        membership.join(dict)
        account = account_of(server)
        with SignedClient(account, "p/l", names={}) as client:
            stranger = ConsumerGroup(client, "l", "g", "stranger")
            stranger.heartbeat([])
            stranger.save("0", cursor_at(7), force=True)
            late = Membership(stranger, stranger, 30, SystemClock())
            late.save({"0": cursor_at(3)}, at_once=True)
        assert group.checkpoints()["0"] == cursor_at(7)
    assert "shard 0 belongs to another consumer" in caplog.text


def test_a_member_has_the_same_name_when_it_is_started_again(tmp_path: Path) -> None:
    """A member's name is unique, and the same after a restart."""
    from producer.agent.sources.loghub_group import consumer_name

    name = consumer_name(tmp_path / "a", "x")
    assert name == consumer_name(tmp_path / "a", "x") != consumer_name(tmp_path / "b", "x")
    (tmp_path / "a" / "consumer").write_text("")
    assert consumer_name(tmp_path / "a", "x") == consumer_name(tmp_path / "a", "x") != ""


def test_shards_and_a_group_exclude_each_other() -> None:
    """shards together with group is refused before the start."""
    given = {"project": "p", "logstore": "l", "endpoint": "http://x", "access_key_id": "i", "access_key_secret": "s"}
    with pytest.raises(AgentConfigError, match="shards"):
        made("sources", "loghub", **given, group="g", shards=[1])


def test_up_to_where_nothing_can_be_lost(tmp_path: Path) -> None:
    """The safe position is the committed one for a durable channel, and the delivered one for a memory channel."""
    kept, forgetting = file_channel(tmp_path / "k"), memory_channel(tmp_path / "m")
    with opened(kept), opened(forgetting):
        batch = _one_event().at(Position("f", 2))
        for channel in (kept, forgetting):
            channel.put(batch)
        assert [ledger_in(channel, "f").safe_end("f") for channel in (kept, forgetting)] == [2, 0]
        taken(forgetting)
        assert ledger_in(forgetting, "f").safe_end("f") == 2
