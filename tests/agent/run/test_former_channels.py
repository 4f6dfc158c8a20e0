"""Changed and removed channels: events left in them, and ranges read again, are reported."""

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from producer.agent import Agent, AgentConfig
from producer.agent.config import parse_toml
from producer.agent.events.event_format import read_batch
from producer.agent.run.agent import ChannelStartError
from producer.channels.file.recovery.inspection import look_at_events
from producer.channels.file.store.encryption import FileKeys
from producer.cli import main
from tests.support.waiting import eventually

from ..parts import Hub, plug_in
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
    """Return the offset up to which the channels have the source's data."""
    return agent._ledgers.of("r").ends("r/feed")[0]


def _feed(hub: Hub, config: AgentConfig, *, fails: bool) -> None:
    """Put two lines into the channel, where they stay if the sink fails."""
    hub.failing = fails
    with running(config) as agent:
        for line in (b"1\n", b"2\n"):
            hub.lines.put(line)
        eventually(lambda: _known(agent) == 2 or not hub.repeats)
        eventually(lambda: agent.channels["queue"].held == 2 if fails else len(hub.delivered) == 2)
    hub.failing = False


_RENAMED = ("queue", "spool")


@pytest.mark.parametrize("selector", ["replicating", "load_balancing"])
@pytest.mark.parametrize("kind", ["file", "memory", "spillable"])
@pytest.mark.parametrize("reload", [False, True])
def test_behind_a_channel_that_is_renamed_nothing_is_read_again(
    tmp_path: Path, hub: Hub, selector: str, kind: str, *, reload: bool
) -> None:
    """After a channel that delivered all is renamed, or changes its type, nothing is read again."""
    chosen = ("replicating", selector)
    _feed(hub, _config(tmp_path, chosen, kind=kind), fails=False)
    after = _config(tmp_path, chosen, _RENAMED, kind="memory" if kind == "file" else "file")
    with running(_config(tmp_path, chosen, kind=kind) if reload else after) as agent:
        if reload:
            agent.reload(after)
        eventually(lambda: _known(agent) == 2)
        hub.lines.put(b"3\n")
        eventually(lambda: hub.delivered == [b"1", b"2", b"3"])


def test_a_channel_with_a_directory_of_its_own_is_the_same_one_under_another_name(tmp_path: Path, hub: Hub) -> None:
    """A renamed channel with the same directory keeps its events, and nothing is read again."""
    place = ('type = "file"', f'type = "file"\ndirectory = "{tmp_path}/here"')
    _feed(hub, _config(tmp_path, place), fails=True)
    hub.failing = True
    with running(_config(tmp_path, place, _RENAMED)) as agent:
        assert (_known(agent), agent.channels["spool"].held) == (2, 2)
        hub.failing = False
        eventually(lambda: hub.delivered == [b"1", b"2"])


def test_a_channel_that_cannot_be_opened_changes_nothing(tmp_path: Path, hub: Hub) -> None:
    """If a renamed channel cannot be opened, at a start or a reload, the former one keeps its events."""
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
        eventually(lambda: hub.delivered == [b"1", b"2"])


_TWO = (
    ('channels = ["queue"]', 'channels = ["a", "b"]'),
    ("[channels.queue]", '[channels.b]\ntype = "memory"\n[channels.a]'),
    ('channel = "queue"', 'channel = "a"\n[sinks.l]\ntype = "keep"\nhub = "a"\nchannel = "b"'),
)


def test_events_in_a_channel_that_is_no_longer_configured_are_reported(
    tmp_path: Path, hub: Hub, caplog: pytest.LogCaptureFixture
) -> None:
    """Events in a channel that is no longer configured are reported, and delivered as the report says."""
    _feed(hub, _config(tmp_path), fails=True)
    files = tmp_path / "channels/queue/events"
    text = (
        f"no channel uses {files}, and 2 events in it are not delivered: to deliver them, configure a channel"
        f" with directory = '{files}' and a sink (or the renamed channel with that directory), or print them"
        f" with: producer channel export {files}"
    )
    with running(_config(tmp_path, *_TWO)):
        assert text in caplog.text
    caplog.clear()
    more = f'[channels.old]\ntype = "file"\ndirectory = "{files}"\n[sinks.old]\ntype = "keep"\nhub = "a"\n'
    with running(_config(tmp_path, *_TWO, ("[channels.a]", f'{more}channel = "old"\n[channels.a]'))) as agent:
        eventually(lambda: hub.delivered == [b"1", b"2"])
        (note,) = agent.blueprint.notes
        assert note.endswith("channels.old: no source writes to it: its sink delivers only the events already in it")
    assert "no channel uses" not in caplog.text


_AGAIN = "source r: its channels, selector or interceptors have changed, and its channels differ in 1 file or partition"


def test_check_and_the_start_report_that_an_added_channel_has_undelivered_events_read_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``check`` and the start report that an added channel has undelivered events read again, and otherwise nothing."""
    hub, away = plug_in(monkeypatch, "a", "b")
    away.failing = True
    sink = '[sinks.m]\ntype = "keep"\nhub = "b"\nchannel = "m"\n[channels.m]\ntype = "memory"\n'
    another = sink.replace(".m]", ".n]").replace('"m"', '"n"')
    both = ('channels = ["queue"]', 'channels = ["queue", "m"]'), ("[channels.queue]", f"{sink}[channels.queue]")
    more = both[0], ('"m"]', '"m", "n"]'), ("[channels.queue]", sink + another + "[channels.queue]")
    agent = Agent(_config(tmp_path, *both))
    agent.start()
    hub.lines.put(b"1\n")
    eventually(lambda: hub.delivered == [b"1"])

    def tells(changes: Iterable[tuple[str, str]]) -> bool:
        text, path = _ONE.format(state=tmp_path, kind="file"), tmp_path / "agent.toml"
        for old, new in changes:
            text = text.replace(old, new)
        path.write_text(text)
        assert main(["agent", "check", "--config", str(path)]) == 0
        return _AGAIN in capsys.readouterr().err

    assert (tells(both), tells(more)) == (False, True)  # while the agent runs
    agent.stop(0.1)
    assert (tells(both), tells(more)) == (False, True)
    away.failing = False
    with running(_config(tmp_path, *more)) as agent:
        assert _AGAIN in caplog.text
        assert _known(agent) == hub.lines.qsize() == 0
        hub.number = 0
        hub.lines.put(b"1\n")
        eventually(lambda: hub.delivered == [b"1", b"1"] and away.delivered == [b"1", b"1"])


_KEYS = '{"current": "a", "keys": {"a": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}}'
_TYPE = 'type = "file"'
_HERE = f'{_TYPE}\ndirectory = "{{state}}/channels/queue/events"'
_MEMORY = '[sinks.m]\ntype = "keep"\nhub = "b"\nchannel = "m"\n[channels.m]\ntype = "memory"\n[channels.queue]'
_AND_M = (('["queue"]', '["queue", "m"]'), ("[channels.queue]", _MEMORY))
_OLD = f'[channels.old]\n{_HERE}\n[sinks.old]\ntype = "keep"\nhub = "a"\nchannel = "old"\n[channels.spool]'
_HOST = ("[sources.r.selector]", '[[sources.r.interceptors]]\ntype = "host"\n[sources.r.selector]')
_Changes = tuple[tuple[str, str], ...]


def _text(state: Path, changes: _Changes) -> str:
    text = _ONE.replace("{kind}", "file").replace("{state}", str(state))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new.replace("{state}", str(state)))
    return text


def _read(hub: Hub, count: int) -> None:
    """Feed lines from the first one, as a restarted source does."""
    hub.number = 0
    for number in range(1, count + 1):
        hub.lines.put(b"%d\n" % number)


@pytest.mark.parametrize(
    ("before", "change", "again"),
    [
        pytest.param((), (), "", id="none"),
        pytest.param((), (_RENAMED,), "", id="renamed"),
        pytest.param((), (_RENAMED, (_TYPE, _HERE)), "", id="renamed-with-its-directory"),
        pytest.param((), (_RENAMED, ("[channels.spool]", _OLD)), "", id="the-old-one-with-a-sink"),
        pytest.param((), ((_TYPE, 'type = "memory"'),), "", id="of-another-type"),
        pytest.param(((_TYPE, f'{_TYPE}\ndirectory = "{{state}}/own"'),), (), "", id="in-another-directory"),
        pytest.param((), _AND_M, "", id="added"),
        pytest.param((), (_HOST,), "", id="interceptor"),
        pytest.param((), (("sources.r", "sources.s"),), "source s is new, and source r", id="source-renamed"),
        pytest.param(_AND_M, (), _AGAIN, id="removed"),
        pytest.param(_AND_M, (*_AND_M, _HOST), _AGAIN, id="interceptor-before-two"),
        pytest.param(
            ((_TYPE, f'{_TYPE}\nkey_file = "{{state}}/keys"'),),
            (_RENAMED,),
            "the source reads them again",
            id="encrypted",
        ),
    ],
)
def test_after_a_crash_with_a_changed_configuration_each_line_arrives_once_or_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    before: _Changes,
    change: _Changes,
    again: str,
) -> None:
    """After a crash with a changed configuration, each line arrives once or is reported.

    Of four lines the channel had delivered two. Lines that wait in the directory of a former channel, or are
    duplicated, are reported by ``check`` and by the log.
    """
    first, second = plug_in(monkeypatch, "a", "b")
    state, path = tmp_path / "state", tmp_path / "agent.toml"
    state.mkdir()
    (state / "keys").write_text(_KEYS)
    second.failing = True
    agent = Agent(parse_toml(_text(state, before)))
    agent.start()
    try:
        _read(first, 2)
        eventually(lambda: first.delivered == [b"1", b"2"] and not agent.channels["queue"].held)
        first.failing = True
        _read(first, 4)
        eventually(lambda: first.number == 4 and agent.channels["queue"].held == 2)
        shutil.copytree(state, tmp_path / "killed")
    finally:
        agent.stop(0)  # in order or not: the copy is what a crash leaves
        agent.stop(60)  # until a source that was late has ended
    shutil.rmtree(state)
    (tmp_path / "killed").rename(state)
    path.write_text(_text(state, change))
    assert main(["agent", "check", "--config", str(path)]) == 0
    checked = capsys.readouterr().err
    first.failing = second.failing = False
    caplog.clear()
    with running(parse_toml(path.read_text())) as agent:
        _read(first, 4)
        eventually(lambda: first.number == 4 and agent.delivered())
        left = agent.undelivered
    for told in (checked, caplog.text):
        assert again in told if again else "again" not in told
        assert all(f"no channel uses {place}, and {waits}" in told for place, waits in left.items())
    keys = FileKeys(state / "keys")
    waiting = [read_batch(event) for place in left for event in look_at_events(place, keys=keys)]
    copies = Counter(first.delivered) + Counter(body for batch in waiting for body in batch.bodies())
    assert sorted(copies) == [b"1", b"2", b"3", b"4"]
    assert max(copies.values()) == (2 if again else 1)
