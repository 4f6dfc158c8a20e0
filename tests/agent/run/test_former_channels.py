"""Channels that come, go and change: what is left in them, and what is read again, is told."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from producer.agent import Agent, AgentConfig
from producer.agent.config import parse_toml
from producer.agent.run.agent import ChannelStartError
from producer.cli import main

from ..parts import Hub, plug_in, until
from .test_agent_reload import running

_ONE = """
[agent]
state = "{state}"
[sources.r]
type = "feed"
hub = "a"
channels = ["queue"]
[sources.r.selector]
type = "replicating"
[channels.queue]
type = "{kind}"
[sinks.k]
type = "keep"
hub = "a"
channel = "queue"
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    (hub,) = plug_in(monkeypatch, "a")
    return hub


def _config(tmp_path: Path, *changes: tuple[str, str], kind: str = "file") -> AgentConfig:
    text = _ONE.format(state=tmp_path, kind=kind)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_toml(text)


def _known(agent: Agent) -> int:
    """Up to where its channels have what the source has read."""
    return agent._ledgers.of("r").ends("r/feed")[0]


def _feed(hub: Hub, config: AgentConfig, *, fails: bool) -> None:
    """Two lines go into the channel, and stay there if the sink fails."""
    hub.failing = fails
    with running(config) as agent:
        for line in (b"1\n", b"2\n"):
            hub.lines.put(line)
        until(lambda: _known(agent) == 2 or not hub.repeats)
        until(lambda: agent.channels["queue"].held == 2 if fails else len(hub.delivered) == 2)
    hub.failing = False


_RENAMED = ("queue", "spool")


@pytest.mark.parametrize("selector", ["replicating", "load_balancing"])
@pytest.mark.parametrize("kind", ["file", "memory", "spillable"])
@pytest.mark.parametrize("reload", [False, True])
def test_behind_a_channel_that_is_renamed_nothing_is_read_again(
    tmp_path: Path, hub: Hub, selector: str, kind: str, *, reload: bool
) -> None:
    """The channel has delivered all; its source goes on with the new one, also where that is of another type."""
    chosen = ("replicating", selector)
    _feed(hub, _config(tmp_path, chosen, kind=kind), fails=False)
    after = _config(tmp_path, chosen, _RENAMED, kind="memory" if kind == "file" else "file")
    with running(_config(tmp_path, chosen, kind=kind) if reload else after) as agent:
        if reload:
            agent.reload(after)
        until(lambda: _known(agent) == 2)
        hub.lines.put(b"3\n")
        until(lambda: hub.delivered == [b"1", b"2", b"3"])


def test_a_channel_with_a_directory_of_its_own_is_the_same_one_under_another_name(tmp_path: Path, hub: Hub) -> None:
    """Nothing is lost, and nothing is read again."""
    place = ('type = "file"', f'type = "file"\ndirectory = "{tmp_path}/here"')
    _feed(hub, _config(tmp_path, place), fails=True)
    hub.failing = True
    with running(_config(tmp_path, place, _RENAMED)) as agent:
        assert (_known(agent), agent.channels["spool"].held) == (2, 2)
        hub.failing = False
        until(lambda: hub.delivered == [b"1", b"2"])


def test_a_channel_that_cannot_be_opened_changes_nothing(tmp_path: Path, hub: Hub) -> None:
    """At a start and at a reload: the former one goes on with its events."""
    _feed(hub, _config(tmp_path), fails=True)
    wrong = _config(tmp_path, _RENAMED, ('type = "file"', f'type = "file"\nkey_file = "{tmp_path}/none.json"'))
    with pytest.raises(ChannelStartError, match=r"channel spool cannot be opened"), running(wrong):
        pass
    hub.failing = True
    with running(_config(tmp_path)) as agent:
        with pytest.raises(ChannelStartError, match=r"channel spool cannot be opened"):
            agent.reload(wrong)
        assert (_known(agent), agent.channels["queue"].held) == (2, 2)
        hub.failing = False
        until(lambda: hub.delivered == [b"1", b"2"])


_TWO = (
    ('channels = ["queue"]', 'channels = ["a", "b"]'),
    ("[channels.queue]", '[channels.b]\ntype = "memory"\n[channels.a]'),
    ('channel = "queue"', 'channel = "a"\n[sinks.l]\ntype = "keep"\nhub = "a"\nchannel = "b"'),
)


def test_what_is_left_in_a_channel_that_is_not_configured_is_told(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """Two new ones are in its place: nobody knows which of them is to go on with it. The start says what to do, and
    that is done.
    """
    _feed(hub, _config(tmp_path), fails=True)
    files = tmp_path / "channels/queue/events"
    text = (
        f"channel queue is no longer configured: 2 events in {files} that no sink takes; to have them delivered"
        f" configure a channel with directory = '{files}' and a sink, or print them with: producer channel export"
        f" {files}"
    )
    with running(_config(tmp_path, *_TWO)):
        assert text in caplog.text
    caplog.clear()
    more = f'[channels.old]\ntype = "file"\ndirectory = "{files}"\n[sinks.old]\ntype = "keep"\nhub = "a"\n'
    with running(_config(tmp_path, *_TWO, ("[channels.a]", f'{more}channel = "old"\n[channels.a]'))) as agent:
        until(lambda: hub.delivered == [b"1", b"2"])
        (note,) = agent.blueprint.notes
        assert note.endswith("channels.old: no source writes to it: its sink delivers what is in it, and nothing else")
    assert "no longer configured" not in caplog.text


_AGAIN = "source r: its channels, selector or interceptors have changed, and of 1 file or partition not all channels"


def test_check_and_the_start_tell_what_a_change_has_read_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A file channel had what one in memory had not delivered when the agent ended: with a channel more that comes
    again, and nothing is lost; with the same channels nothing is told.
    """
    hub, away = plug_in(monkeypatch, "a", "b")
    away.failing = True
    sink = '[sinks.m]\ntype = "keep"\nhub = "b"\nchannel = "m"\n[channels.m]\ntype = "memory"\n'
    another = sink.replace(".m]", ".n]").replace('"m"', '"n"')
    both = ('channels = ["queue"]', 'channels = ["queue", "m"]'), ("[channels.queue]", f"{sink}[channels.queue]")
    more = both[0], ('"m"]', '"m", "n"]'), ("[channels.queue]", sink + another + "[channels.queue]")
    agent = Agent(_config(tmp_path, *both))
    agent.start()
    hub.lines.put(b"1\n")
    until(lambda: hub.delivered == [b"1"])

    def tells(changes: Iterable[tuple[str, str]]) -> bool:
        text, path = _ONE.format(state=tmp_path, kind="file"), tmp_path / "agent.toml"
        for old, new in changes:
            text = text.replace(old, new)
        path.write_text(text)
        assert main(["agent", "check", "--config", str(path)]) == 0
        return _AGAIN in capsys.readouterr().err

    assert (tells(both), tells(more)) == (False, True)  # beside the agent that runs
    agent.stop(0.1)
    assert (tells(both), tells(more)) == (False, True)
    away.failing = False
    with running(_config(tmp_path, *more)) as agent:
        assert _AGAIN in caplog.text
        assert _known(agent) == hub.lines.qsize() == 0
        hub.number = 0
        hub.lines.put(b"1\n")
        until(lambda: hub.delivered == [b"1", b"1"] and away.delivered == [b"1", b"1"])


def test_check_tells_what_is_left_in_channels_that_are_not_configured(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts, though the channel only got another name; nothing is changed."""
    _feed(hub, _config(tmp_path), fails=True)
    told = []
    for changes in ((_RENAMED,), _TWO):
        text = _ONE.format(state=tmp_path, kind="file")
        for old, new in changes:
            text = text.replace(old, new)
        path = tmp_path / "agent.toml"
        path.write_text(text)
        assert main(["agent", "check", "--config", str(path)]) == 0
        told.append(capsys.readouterr().err)
    assert all("channel queue is no longer configured: 2 events in" in each for each in told)
    assert (tmp_path / "channels/queue/events").is_dir()
