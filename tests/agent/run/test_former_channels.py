"""A channel that has another name in the configuration is the same one; what is left of others is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.agent import AgentConfig
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


def _known(agent: object) -> int:
    """Up to where its channels have what the source has read."""
    return min(channel.positions.end("r/feed") for channel in agent.channels.values())  # type: ignore[attr-defined]


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
@pytest.mark.parametrize("reload", [False, True])
def test_a_file_channel_that_is_renamed_keeps_its_events_and_positions(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture, selector: str, *, reload: bool
) -> None:
    """Its directory follows its name, while the agent is away or runs: nothing is lost, and nothing is read again."""
    chosen = ("replicating", selector)
    before = _config(tmp_path, chosen)
    _feed(hub, before, fails=True)
    after = _config(tmp_path, chosen, _RENAMED)
    hub.failing = True
    with running(before if reload else after) as agent:
        if reload:
            agent.reload(after)
        assert (_known(agent), agent.channels["spool"].held) == (2, 2)
        hub.failing = False
        until(lambda: hub.delivered == [b"1", b"2"])
    assert [each.name for each in (tmp_path / "channels").iterdir()] == ["spool"]
    assert "channel spool has what channel queue had, which is no longer configured" in caplog.text


def test_events_that_nobody_can_read_again_go_along_with_their_channel(tmp_path: Path, hub: Hub) -> None:
    """A source without positions, as those that listen: its file channel is renamed."""
    hub.repeats = False
    _feed(hub, _config(tmp_path), fails=True)
    with running(_config(tmp_path, _RENAMED)):
        until(lambda: hub.delivered == [b"1", b"2"])


@pytest.mark.parametrize("selector", ["replicating", "load_balancing"])
@pytest.mark.parametrize("kind", ["memory", "spillable"])
def test_a_channel_that_forgets_keeps_its_positions_when_it_is_renamed(
    tmp_path: Path, hub: Hub, selector: str, kind: str
) -> None:
    """It is the only one of its source, and has delivered all."""
    chosen = ("replicating", selector)
    _feed(hub, _config(tmp_path, chosen, kind=kind), fails=False)
    with running(_config(tmp_path, chosen, _RENAMED, kind=kind)) as agent:
        until(lambda: _known(agent) == 2)


def test_a_channel_with_a_directory_of_its_own_is_the_same_one_under_another_name(tmp_path: Path, hub: Hub) -> None:
    """Nothing is lost, and nothing is read again."""
    place = ('type = "file"', f'type = "file"\ndirectory = "{tmp_path}/here"')
    _feed(hub, _config(tmp_path, place), fails=True)
    hub.failing = True
    with running(_config(tmp_path, place, _RENAMED)) as agent:
        assert (_known(agent), agent.channels["spool"].held) == (2, 2)
        hub.failing = False
        until(lambda: hub.delivered == [b"1", b"2"])


def test_a_renamed_channel_that_cannot_be_opened_is_there_under_its_former_name(tmp_path: Path, hub: Hub) -> None:
    """At a start and at a reload: nothing is changed."""
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


_AGAIN = "source r: queue is no longer configured, and no other channel has what it has read"


@pytest.mark.parametrize("reload", [False, True])
def test_what_is_read_again_is_told(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture, *, reload: bool
) -> None:
    """Two new channels are in the place of one that is empty: where its source was nobody knows. So it is not where
    another one is still there.
    """
    _feed(hub, _config(tmp_path), fails=False)
    two, place = _config(tmp_path, *_TWO), tmp_path / "channels"
    with running(_config(tmp_path) if reload else two) as agent:
        if reload:
            assert _AGAIN not in caplog.text
            agent.reload(two)
        text = f"{_AGAIN}: what it can read again it reads from the beginning; if it is not to, move the directory of"
        assert f"{text} one, in {place}, to the place of a new channel's while the agent is stopped" in caplog.text
        hub.lines.put(b"3\n")
        until(lambda: hub.delivered == [b"1", b"2", b"3", b"3"])
    caplog.clear()
    changed = ('channels = ["a", "b"]', 'channels = ["b", "c", "d"]'), ("[channels.a]", "[channels.c]")
    more = '[channels.d]\ntype = "memory"\n[sinks.n]\ntype = "keep"\nhub = "a"\nchannel = "d"\n[channels.c]'
    with running(_config(tmp_path, *_TWO, *changed, ("[channels.c]", more), ('channel = "a"', 'channel = "c"'))):
        assert "no longer configured" not in caplog.text


def test_check_tells_what_becomes_of_channels_that_are_not_configured(
    tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts: which one goes on with it, or that nobody takes it. Nothing is changed."""
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
    assert "channel spool goes on with what queue has" in told[0]
    assert "channel queue is no longer configured: 2 events in" in told[1]
    assert (tmp_path / "channels/queue/events").is_dir()
