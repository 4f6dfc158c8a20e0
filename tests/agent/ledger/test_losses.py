"""Damage of an agent's channel is reported with its amount, and a command to read the events again."""

import base64
import json
import logging
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.agent.events.batch import EventBatch, Position
from producer.agent.flow.channel import BatchChannel
from producer.channels.file.queue import recent
from tests.agent.sources.putting import reading
from tests.support.waiting import eventually

from ..doubles import file_channel, ledger_in, opened, spillable_channel, taken
from ..parts import plug_in

LINES = 1000


@pytest.fixture(autouse=True)
def _read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 0)


def _block(number: int) -> bytes:
    return b"".join(b"batch %d line %d\n" % (number, line) for line in range(LINES))


def _damage(state: Path, mark: bytes, *, offset: int = 0) -> None:
    """Flip a bit of stored data in a segment."""
    for path in state.rglob("log-*"):
        data = bytearray(path.read_bytes())
        if path.is_file() and (at := data.find(mark)) >= 0:
            data[at + offset] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError(f"no segment holds {mark!r}")


def _filled(state: Path, source: Path, batches: int = 3) -> BatchChannel:
    """Return a channel with what ``taildir`` has read of a file, one block at a time."""
    channel = file_channel(state)
    with reading("taildir", state, {"c": channel}, paths=[str(source)]):
        for number in range(batches):
            with source.open("ab", buffering=0) as file:  # written at once
                file.write(_block(number))
            eventually(lambda number=number: channel.held == LINES * (number + 1))
    return channel


def _read_again(messages: list[str]) -> bytes:
    told = "\n".join(messages)
    command = re.search(r"(tail -c .*)$", told, re.MULTILINE)
    assert command is not None, told
    return subprocess.run(["sh", "-c", command[1]], check=True, capture_output=True).stdout


def test_after_a_bit_flip_1_000_lines_count_as_lost_and_the_logged_command_prints_exactly_these(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a bit flip, 1,000 lines count as lost, and the logged command prints exactly these."""
    source, state = tmp_path / "a log.txt", tmp_path / "state"
    channel = _filled(state, source)
    with opened(channel):
        _damage(state, b"batch 1 line 500")
        assert taken(channel) == (_block(0) + _block(2)).splitlines()
        assert channel.held == 0
        assert (channel.counters.get("EventLostCount"), channel.counters.get("BatchLostCount")) == (LINES, 1)
        assert "channel c: 1 batch with 1000 events is damaged on the disk and lost" in caplog.text
        assert "1 events" not in caplog.text
        assert _read_again(caplog.messages) == _block(1)


def test_the_command_finds_a_file_that_was_renamed_since(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The command finds a rotated file by its inode."""
    source, state = tmp_path / "app.log", tmp_path / "state"
    channel = _filled(state, source)
    source.rename(tmp_path / "app.log.1")
    source.write_bytes(b"another file\n" * 10_000)
    with opened(channel):
        _damage(state, b"batch 1 line 500")
        taken(channel)
    assert _read_again(caplog.messages) == _block(1)


@pytest.mark.parametrize("checkpoint", [True, False], ids=["in the checkpoint", "in the log"])
def test_damage_found_at_opening_is_reported_once_with_the_command_and_not_again_by_a_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, checkpoint: bool
) -> None:
    """Damage found at opening is reported once, with the command, and not again by a take."""
    source, state = tmp_path / "app.log", tmp_path / "state"
    _filled(state, source).close()
    _damage(state, b"batch 1 line 500")
    if not checkpoint:
        for path in (state / "c/events").glob("checkpoint*"):
            path.unlink()
    with opened(file_channel(state)) as channel:
        assert channel.held == 2 * LINES
        assert channel.counters.get("EventLostCount") == LINES
        assert _read_again(caplog.messages) == _block(1)
        assert not re.search(r"\b1 events", caplog.text)
        caplog.clear()
        assert taken(channel) == (_block(0) + _block(2)).splitlines()
        assert channel.held == 0
        assert channel.counters.get("EventLostCount") == LINES
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("damaged", [[2], [1, 2]])
def test_the_newest_batches_of_a_file_are_read_again_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: list[int]
) -> None:
    """The source reads damaged newest batches again; none is lost, or counted as lost."""
    source, state = tmp_path / "app.log", tmp_path / "state"
    _filled(state, source).close()
    for number in damaged:
        _damage(state, b"batch %d line 500" % number)
    with opened(file_channel(state)) as channel, reading("taildir", state, {"c": channel}, paths=[str(source)]):
        assert f"with {1000 * len(damaged)} events" in caplog.text
        assert "damaged on the disk, but not lost: their sources read them again" in caplog.text
        eventually(lambda: channel.held == 3 * LINES)
        assert channel.counters.get("EventLostCount") == 0
        assert taken(channel) == b"".join(map(_block, range(3))).splitlines()
        assert channel.held == 0


def _key_file(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"current": "a", "keys": {"a": base64.b64encode(b"k" * 32).decode()}}))
    return {"key_file": path}


def test_a_batch_with_damaged_headers_counts_as_a_batch_with_an_unknown_number_of_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch with damaged headers counts as a batch with an unknown number of events, and the empty channel counts
    none.
    """
    with opened(file_channel(tmp_path)) as channel:
        for number in range(3):
            channel.put(EventBatch.of_lines(_block(number), position=Position("s/f", number + 1, "", number)))
        _damage(tmp_path, b"2 s/f", offset=-20)
        assert taken(channel) == (_block(0) + _block(2)).splitlines()
        assert channel.held == 0
        assert channel.counters.get("BatchLostCount") == 1
    assert re.search(r"1 batch with (an unknown number of|\d+) events", caplog.text)


def test_a_damaged_encrypted_batch_has_an_unknown_number_of_events_the_others_are_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged encrypted batch has an unknown number of events; the others are delivered."""
    state = tmp_path / "state"
    with opened(file_channel(state, **_key_file(tmp_path))) as channel:
        for number in range(3):
            channel.put(EventBatch.of_lines(_block(number)))
        (path,) = state.rglob("log-*")
        data = bytearray(path.read_bytes())
        data[len(data.rstrip(b"\0")) // 2] ^= 1  # behind what is written there may be room
        path.write_bytes(data)
        assert taken(channel) == (_block(0) + _block(2)).splitlines()
        assert channel.held == 0
        assert (channel.counters.get("EventLostCount"), channel.counters.get("BatchLostCount")) == (0, 1)
    assert "1 batch with an unknown number of events is damaged on the disk and lost" in caplog.text


def test_spilled_events_count_as_waiting_after_a_restart_and_taking_them_leaves_none(tmp_path: Path) -> None:
    """Spilled events count as waiting after a restart, and taking them leaves none."""
    with opened(spillable_channel(tmp_path)) as channel:
        for number in range(3):
            channel.put(EventBatch.of_lines(_block(number)))
        spilled = channel.channel.stats().size - channel.channel._memory.stats().size  # type: ignore[attr-defined]
    with opened(spillable_channel(tmp_path)) as channel:
        assert channel.held == spilled * LINES > 0
        taken(channel)
        assert channel.held == 0


_AGENT = """
[agent]
state = "{state}"
[sources.s]
type = "taildir"
paths = ["{path}"]
channels = {channels}
selector = {{ type = "{selector}" }}
"""
_CHANNEL = """
[channels.{name}]
type = "{type}"
minimum_free_space = 0
{more}
[sinks.of-{name}]
type = "keep"
hub = "a"
channel = "{name}"
"""


def _agent(state: Path, path: Path, selector: str = "replicating", **channels: str) -> Agent:
    """Return an agent that follows a file, with a keeping sink for each channel."""
    text = _AGENT.format(state=state, path=path, selector=selector, channels=list(channels))
    for name, told in channels.items():
        kind, _, more = told.partition(" ")
        text += _CHANNEL.format(name=name, type=kind, more=more)
    return Agent(parse_toml(text))


def _grow(agent: Agent, path: Path, batches: int) -> None:
    """Append batches to a file, one at a time."""
    for number in range(batches):
        with path.open("ab") as file:
            file.write(_block(number))
        wanted = LINES * (number + 1)
        eventually(lambda wanted=wanted: _put_into(agent) == wanted)


def _put_into(agent: Agent) -> int:
    """Return the number of events whose commits have returned."""
    return sum(each.counters.get("EventPutSuccessCount") for each in agent.channels.values())


def test_a_damaged_batch_of_a_channel_that_forgets_is_read_again_while_the_agent_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The source reads a damaged spilled batch again at once, and nothing else."""
    (hub,) = plug_in(monkeypatch, "a")
    path, hub.failing = tmp_path / "app.log", True
    agent = _agent(tmp_path / "state", path, c="spillable memory_bytes = 256")
    agent.start()
    try:
        _grow(agent, path, 4)
        _damage(tmp_path / "state", b"batch 2 line 500")
        hub.failing = False
        lines = b"".join(map(_block, range(4))).splitlines()
        eventually(lambda: set(hub.delivered) == set(lines) and agent.delivered())
        channel = agent.channels["c"]
        ledger = ledger_in(channel)
        (name,) = ledger.names()
        eventually(lambda: ledger.safe_end(name) == path.stat().st_size)
        assert sorted(hub.delivered) == sorted(lines)
        assert channel.counters.get("EventLostCount") == 0
        assert agent.health_of("sources.s").counters.get("RestartCount") == 0
    finally:
        agent.stop(60)
    assert "not lost: their sources read them again" in caplog.text


def test_with_two_channels_in_turn_a_damaged_newest_batch_of_one_is_reported_as_lost_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With two channels in turn, a damaged newest batch of one is reported as lost, with its command."""
    (hub,) = plug_in(monkeypatch, "a")
    path, hub.failing, state = tmp_path / "app.log", True, tmp_path / "state"
    agent = _agent(state, path, "load_balancing", b="file", c="file")
    agent.start()
    try:
        _grow(agent, path, 4)
        shutil.copytree(state, tmp_path / "killed")
    finally:
        agent.stop(0)
    _damage(tmp_path / "killed", b"batch 2 line 500")
    caplog.clear()
    hub.failing, hub.delivered = False, []
    agent = _agent(tmp_path / "killed", path, "load_balancing", b="file", c="file")
    agent.start()
    try:
        eventually(lambda: sorted(hub.delivered) == sorted((_block(0) + _block(1) + _block(3)).splitlines()))
        assert agent.channels["b"].counters.get("EventLostCount") == LINES
    finally:
        agent.stop(60)
    assert "channel b: 1 batch with 1000 events is damaged on the disk and lost" in caplog.text
    assert _read_again(caplog.messages) == _block(2)


def test_a_damaged_spilled_batch_found_at_opening_is_reported_as_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged spilled batch found at opening is reported as read again."""
    with opened(spillable_channel(tmp_path)) as channel:
        for number in range(3):
            channel.put(EventBatch.of_lines(_block(number), position=Position("s/f", number + 1, "", number)))
        _damage(tmp_path, b"batch 1 line 500")
        assert len(taken(channel)) == 2 * LINES
        assert channel.held == 0
        assert channel.counters.get("EventLostCount") == 0
        assert ledger_in(channel).safe_end("s/f") == 1
    assert "not lost: their sources read them again" in caplog.text


def test_two_adjacent_damaged_batches_give_one_range_and_one_command(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two adjacent damaged batches give one range and one command."""
    source, state = tmp_path / "app.log", tmp_path / "state"
    channel = _filled(state, source, batches=4)
    with opened(channel):
        _damage(state, b"batch 1 line 500")
        _damage(state, b"batch 2 line 500")
        assert len(taken(channel)) == 2 * LINES
    assert "2 batches with 2000 events are damaged on the disk and lost" in caplog.text
    assert caplog.text.count("tail -c") == 1
    assert _read_again(caplog.messages) == _block(1) + _block(2)
