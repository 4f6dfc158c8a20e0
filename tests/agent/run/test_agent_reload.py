import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.agent import Agent, AgentConfig, AgentConfigError
from producer.agent.config import parse_toml
from producer.agent.flow import health
from producer.agent.run.agent import ChannelStartError, ReloadError, UndeliveredError
from producer.agent.run.supervisor import State, Supervised

from ...support.waiting import Call, eventually
from ..parts import Hub, plug_in

TWO = """
[agent]
state = "{state}"
stop_timeout = {timeout}
[sources.r1]
type = "feed"
hub = "a"
channels = ["c1"]
[sources.r2]
type = "feed"
hub = "b"
channels = ["c2"]
[channels.c1]
type = "{kind}"
[channels.c2]
type = "memory"
[sinks.k1]
type = "keep"
hub = "a"
channel = "c1"
[sinks.k2]
type = "keep"
hub = "b"
channel = "c2"
"""


def config_of(tmp_path: Path, *changes: tuple[str, str], kind: str = "memory", timeout: float = 10) -> AgentConfig:
    text = TWO.format(state=tmp_path, kind=kind, timeout=timeout)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_toml(text)


@contextmanager
def running(config: AgentConfig) -> Iterator[Agent]:
    agent = Agent(config)
    agent.start()
    try:
        yield agent
    finally:
        assert agent.stop(60)


@pytest.fixture
def hubs(monkeypatch: pytest.MonkeyPatch) -> tuple[Hub, ...]:
    return plug_in(monkeypatch, "a", "b", "other")


def test_only_the_sink_whose_option_changed_is_restarted(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """Only the sink whose option changed is restarted."""
    a, b, _ = hubs
    with running(config_of(tmp_path)) as agent:
        eventually(lambda: (a.made, b.made) == (2, 2))
        before = dict(agent.channels)
        changes = agent.reload(config_of(tmp_path, ('hub = "a"\nchannel =', 'hub = "a"\nmark = 1\nchannel =')))
        assert str(changes) == "changed: sink k1"
        eventually(lambda: a.made == 3)
        a.lines.put(b"one\n")
        eventually(lambda: a.delivered == [b"one"])
        assert (a.closed, b.made, b.closed) == (1, 2, 0)
        assert agent.channels == before


def test_a_replaced_sinks_failures_do_not_count_against_the_new_one(
    tmp_path: Path, hubs: tuple[Hub, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replaced sink's failures do not count against the new one."""
    a, _, other = hubs
    monkeypatch.setattr(health, "FAILING", 0.0)
    a.failing = True
    with running(config_of(tmp_path)) as agent:
        a.lines.put(b"one\n")
        eventually(lambda: agent.health_of("sinks.k1").trouble())
        other.hanging.clear()
        agent.reload(config_of(tmp_path, ('hub = "a"\nchannel =', 'hub = "other"\nchannel =')))
        eventually(lambda: other.writing)
        assert agent.health_of("sinks.k1").trouble() is None
        other.hanging.set()


def test_limits_of_the_whole_agent_change_while_it_runs(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """The agent's limits change, or end, without a restart of components."""
    a, b, _ = hubs
    with running(config_of(tmp_path)) as agent:
        eventually(lambda: (a.made, b.made) == (2, 2))
        limited = ("stop_timeout", 'max_cpu = 0.5\nmax_memory_bytes = "1g"\nstop_timeout')
        for changes, limits in (((limited,), (0.5, 1 << 30)), ((), (None, None))):
            assert not agent.reload(config_of(tmp_path, *changes))
            assert (agent._pace.share, agent._memory.limit) == limits
        assert (a.made, b.made) == (2, 2)


def test_the_same_file_changes_nothing(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """A file with the same content in other lines changes nothing."""
    a, b, _ = hubs
    with running(config_of(tmp_path)) as agent:
        eventually(lambda: (a.made, b.made) == (2, 2))
        assert not agent.reload(config_of(tmp_path, ("[sources.r1]", "\n# comment\n[sources.r1]")))
        assert (a.made, b.made, a.closed) == (2, 2, 0)


def test_a_channel_keeps_its_events_while_its_sink_is_replaced(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """Events that a failing sink left in a memory channel are delivered once by its replacement."""
    a, _, other = hubs
    a.failing = True
    with running(config_of(tmp_path)) as agent:
        for number in range(5):
            a.lines.put(b"%d\n" % number)
        eventually(lambda: agent.channels["c1"].held == 5)
        agent.reload(config_of(tmp_path, ('hub = "a"\nchannel =', 'hub = "other"\nchannel =')))
        eventually(lambda: len(other.delivered) == 5)
        assert sorted(other.delivered) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_changed_channel_is_emptied_first_and_reopened_with_its_sources_and_sinks(
    tmp_path: Path, hubs: tuple[Hub, ...]
) -> None:
    """A changed channel is emptied first, and reopened with its sources and sinks, while others continue."""
    a, b, _ = hubs
    with running(config_of(tmp_path)) as agent:
        eventually(lambda: (a.made, b.made) == (2, 2))
        a.lines.put(b"before\n")
        eventually(lambda: a.delivered == [b"before"])
        changes = agent.reload(
            config_of(tmp_path, ('"memory"\n[channels.c2]', '"memory"\ncapacity = 7\n[channels.c2]'))
        )
        assert str(changes) == "changed: channel c1, sink k1, source r1"
        a.lines.put(b"after\n")
        eventually(lambda: a.delivered == [b"before", b"after"])
        assert (agent.channels["c1"].capacity, a.made, b.made) == (7, 4, 2)


def test_after_a_change_of_the_dead_letter_channel_all_refused_events_are_delivered_from_it(
    tmp_path: Path, hubs: tuple[Hub, ...]
) -> None:
    """If only the channel of dead letters changes, refused events before and after are delivered from it."""
    a, b, _ = hubs
    a.refusing = True
    letters = ('hub = "a"\nchannel =', 'hub = "a"\ndead_letters = "c2"\nchannel =')
    larger = ('[channels.c2]\ntype = "memory"', '[channels.c2]\ntype = "memory"\ncapacity = 7')
    with running(config_of(tmp_path, letters)) as agent:
        a.lines.put(b"before\n")
        eventually(lambda: b.delivered == [b"before"])
        assert (
            str(agent.reload(config_of(tmp_path, letters, larger)))
            == "changed: channel c2, sink k1, sink k2, source r2"
        )
        a.lines.put(b"after\n")
        eventually(lambda: b.delivered == [b"before", b"after"])


def test_a_sink_that_may_still_put_dead_letters_ends_before_their_channel_is_replaced(
    tmp_path: Path, hubs: tuple[Hub, ...]
) -> None:
    """A sink that may still put dead letters ends before their channel is replaced."""
    a, b, _ = hubs
    a.refusing = b.failing = True
    a.hanging.clear()
    letters = ('hub = "a"\nchannel =', 'hub = "a"\ndead_letters = "c2"\nchannel =')
    larger = ('[channels.c2]\ntype = "memory"', '[channels.c2]\ntype = "memory"\ncapacity = 7')
    with running(config_of(tmp_path, letters)) as agent:
        a.lines.put(b"late\n")
        eventually(lambda: a.writing)
        reloading = Call(lambda: agent.reload(config_of(tmp_path, letters, larger)))
        eventually(lambda: agent.sinks["k1"].stopping)
        a.hanging.set()
        eventually(lambda: b.writing)
        b.failing = False
        reloading.result()
        eventually(lambda: b.delivered == [b"late"])


def test_events_in_a_file_channel_are_delivered_after_it_was_reopened_with_other_options(
    tmp_path: Path, hubs: tuple[Hub, ...]
) -> None:
    """Events in a file channel are delivered after it was reopened with other options."""
    a, _, _ = hubs
    a.failing = True
    with running(config_of(tmp_path, kind="file")) as agent:
        a.lines.put(b"kept\n")
        eventually(lambda: agent.channels["c1"].held == 1)
        agent.reload(config_of(tmp_path, ('"file"', '"file"\ncapacity = 9'), kind="file"))
        assert agent.channels["c1"].held == 1
        a.failing = False
        eventually(lambda: a.delivered == [b"kept"])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ('"memory"', True),
        ('"file"\ndirectory = "{0}/other"', True),
        ('"spillable"', False),
        ('"file"\ncapacity = 9', False),
    ],
)
def test_events_left_on_the_disk_by_a_channel_with_another_type_or_directory_are_reported(
    tmp_path: Path, hubs: tuple[Hub, ...], caplog: pytest.LogCaptureFixture, changed: str, told: bool
) -> None:
    """Events left on the disk by a channel with another type or directory are reported."""
    a, _, _ = hubs
    a.failing = True
    with running(config_of(tmp_path, kind="file")) as agent:
        a.lines.put(b"kept\n")
        eventually(lambda: agent.channels["c1"].held == 1)
        agent.reload(config_of(tmp_path, ('"file"', changed.format(tmp_path)), kind="file"))
        left = {str(tmp_path / "channels/c1/events"): "1 event"} if told else {}
        assert agent.undelivered == left
        assert all(f"no channel uses {place}, and {waits} in it" in caplog.text for place, waits in left.items())
        a.failing = False


def test_a_change_that_would_lose_events_of_a_memory_channel_is_refused(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """A change that would lose events of a memory channel is refused, and the former agent continues."""
    a, _, _ = hubs
    a.failing = True
    with running(config_of(tmp_path, timeout=0.3)) as agent:
        a.lines.put(b"one\n")
        eventually(lambda: agent.channels["c1"].held == 1)
        changed = config_of(tmp_path, ('"memory"\n[channels.c2]', '"memory"\ncapacity = 7\n[channels.c2]'), timeout=0.3)
        with pytest.raises(ReloadError, match=r"channel c1 holds 1 event that would be lost: .* in 0.3 s") as raised:
            agent.reload(changed)
        assert isinstance(raised.value, UndeliveredError)
        assert not raised.value.is_over()
        a.failing = False
        a.lines.put(b"two\n")
        eventually(lambda: a.delivered == [b"one", b"two"])
        eventually(raised.value.is_over)
        assert agent.channels["c1"].capacity is None


def test_a_wrong_configuration_changes_nothing(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """An invalid configuration, another state directory, or a channel that cannot be opened changes nothing."""
    a, b, _ = hubs
    with running(config_of(tmp_path)) as agent:
        eventually(lambda: (a.made, b.made) == (2, 2))
        with pytest.raises(AgentConfigError, match=r"sinks.k1.hubb: unknown option; did you mean hub"):
            agent.reload(config_of(tmp_path, ('hub = "a"\nchannel =', 'hubb = "a"\nchannel =')))
        with pytest.raises(ReloadError, match=r"^line \d+: agent.state: cannot change from .*: restart it"):
            agent.reload(config_of(tmp_path / "elsewhere"))
        (tmp_path / "file").write_text("in the way")
        new = f'[channels.c3]\ntype = "file"\ndirectory = "{tmp_path}/file/events"\n[channels.c1]'
        letters = ('channel = "c2"', 'channel = "c2"\ndead_letters = "c3"')
        with pytest.raises(ChannelStartError, match=r"channel c3 cannot be opened: .*File exists"):
            agent.reload(config_of(tmp_path, ("[channels.c1]", new), letters))
        a.lines.put(b"goes on\n")
        eventually(lambda: a.delivered == [b"goes on"])
        assert (a.made, b.made, set(agent.channels)) == (2, 2, {"c1", "c2"})


def test_if_a_changed_channel_cannot_be_opened_the_former_one_continues_without_loss(
    tmp_path: Path, hubs: tuple[Hub, ...]
) -> None:
    """If a changed channel cannot be opened, the former one continues without loss."""
    a, _, _ = hubs
    with running(config_of(tmp_path, kind="file")) as agent:
        a.failing = True
        a.lines.put(b"one\n")
        eventually(lambda: agent.channels["c1"].held == 1)
        (tmp_path / "file").write_text("in the way")
        wrong = ('"file"', f'"file"\ndirectory = "{tmp_path}/file/events"')
        with pytest.raises(ChannelStartError, match="File exists"):
            agent.reload(config_of(tmp_path, wrong, kind="file"))
        a.failing = False
        a.lines.put(b"two\n")
        eventually(lambda: a.delivered == [b"one", b"two"])


def test_components_come_and_go(tmp_path: Path, hubs: tuple[Hub, ...], caplog: pytest.LogCaptureFixture) -> None:
    """Components are removed and added again while the others continue."""
    a, b, _ = hubs
    whole = TWO.format(state=tmp_path, kind="memory", timeout=10)
    less = whole.replace('[sources.r2]\ntype = "feed"\nhub = "b"\nchannels = ["c2"]\n', "")
    less = less.replace('[channels.c2]\ntype = "memory"\n', "")
    less = less.replace('[sinks.k2]\ntype = "keep"\nhub = "b"\nchannel = "c2"\n', "")
    with running(parse_toml(whole)) as agent:
        eventually(lambda: (a.made, b.made) == (2, 2))
        assert str(agent.reload(parse_toml(less))) == "removed: channel c2, sink k2, source r2"
        assert (set(agent.channels), set(agent.sources), set(agent.sinks), b.closed) == ({"c1"}, {"r1"}, {"k1"}, 1)
        assert not [name for name in agent.health if name.endswith("2")]
        assert str(agent.reload(parse_toml(whole))) == "new: channel c2, sink k2, source r2"
        b.lines.put(b"again\n")
        eventually(lambda: b.delivered == [b"again"])
        assert a.made == 2


def test_a_failing_sink_leaves_other_pairs_working(
    tmp_path: Path, hubs: tuple[Hub, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """A failing sink leaves other pairs working, and logs one line for its failures and one for its recovery."""
    a, b, _ = hubs
    a.failing = True
    with caplog.at_level(logging.INFO), running(config_of(tmp_path)) as agent:
        a.lines.put(b"waits\n")
        eventually(lambda: agent.health_of("sinks.k1").counters.get("EventWriteFail") >= 3)
        b.lines.put(b"passes\n")
        eventually(lambda: b.delivered == [b"passes"])
        assert (agent.channels["c1"].held, agent.sinks["k1"].state) == (1, State.RUNNING)
        a.failing = False
        eventually(lambda: a.delivered == [b"waits"])
        eventually(lambda: "delivers again" in caplog.text)
    assert [record.getMessage() for record in caplog.records] == [
        "sink k1: 1 event returned to channel c1: the test's sink fails",
        "sink k1 delivers again",
    ]


def test_if_a_channel_cannot_be_opened_nothing_starts_and_channels_opened_before_are_closed(
    tmp_path: Path, hubs: tuple[Hub, ...]
) -> None:
    """If a channel cannot be opened, nothing starts, and channels opened before are closed."""
    (tmp_path / "file").write_text("in the way")
    wrong = ('[channels.c2]\ntype = "memory"', f'[channels.c2]\ntype = "file"\ndirectory = "{tmp_path}/file/events"')
    agent = Agent(config_of(tmp_path, wrong, kind="file"))
    with pytest.raises(ChannelStartError, match=r"channel c2 cannot be opened: .*File exists"):
        agent.start()
    assert hubs[0].made == 0
    with running(config_of(tmp_path, kind="file")):
        pass


def test_sinks_of_a_group_are_counted_each(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """Deliveries and failures count for each sink of a group, and their sums for the group."""
    a, b, _ = hubs
    a.failing = True
    text = TWO.format(state=tmp_path, kind="memory", timeout=10).replace('channel = "c2"', 'channel = "c1"')
    text = text.replace('channels = ["c2"]', 'channels = ["c1"]').replace('[channels.c2]\ntype = "memory"\n', "")
    with running(parse_toml(text + '[groups.g]\ntype = "failover"\nsinks = ["k1", "k2"]\n')) as agent:
        a.lines.put(b"one\n")
        eventually(lambda: b.delivered == [b"one"])
        eventually(lambda: agent.health_of("sinks.g").counters.get("EventDrainSuccessCount") == 1)
        assert agent.health_of("sinks.k1").counters.get("EventWriteFail") == 1
        assert agent.health_of("sinks.k2").counters.get("EventDrainSuccessCount") == 1


def test_a_group_delivers_without_a_sink_that_cannot_be_built(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """A group delivers without a sink that cannot be built, and is restarted if none can be."""
    a, b, _ = hubs
    a.absent = b.absent = True
    text = TWO.format(state=tmp_path, kind="memory", timeout=10).replace('channel = "c2"', 'channel = "c1"')
    text = text.replace('channels = ["c2"]', 'channels = ["c1"]').replace('[channels.c2]\ntype = "memory"\n', "")
    with running(parse_toml(text + '[groups.g]\ntype = "failover"\nsinks = ["k1", "k2"]\nmaxpenalty = 0\n')) as agent:
        eventually(lambda: agent.sinks["g"].state is State.WAITING)
        b.absent = False
        a.lines.put(b"one\n")
        eventually(lambda: b.delivered == [b"one"])
        assert "its directory is not there" in str(agent.health_of("sinks.k1").counters.last_error)
        a.absent = False
        a.lines.put(b"two\n")
        eventually(lambda: b"two" in a.delivered + b.delivered)
        a.lines.put(b"three\n")
        eventually(lambda: b"three" in a.delivered)


def test_a_component_is_known_before_it_runs(
    tmp_path: Path, hubs: tuple[Hub, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that lost events can restart their source even before it runs."""
    agent, start, known = Agent(config_of(tmp_path)), Supervised.start, list[str]()

    def asked(part: Supervised) -> None:
        known.extend(name for name in (agent.sinks | agent.sources) if name == part.name)
        start(part)

    monkeypatch.setattr(Supervised, "start", asked)
    agent.start()
    assert agent.stop(60)
    assert known == ["k1", "k2", "r1", "r2"]


def test_batches_of_a_channel_that_several_sinks_empty_have_no_name(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """Batches have no origin if several sinks take from their channel, since they leave out of order."""
    with running(config_of(tmp_path, kind="file")) as agent:
        assert agent.channels["c1"].origins is not None
    shared = ('channel = "c2"\n', 'channel = "c1"\n'), ('channels = ["c2"]', 'channels = ["c1"]')
    with running(config_of(tmp_path, *shared, ('[channels.c2]\ntype = "memory"\n', ""), kind="file")) as agent:
        assert agent.channels["c1"].origins is None


def test_a_sink_that_does_not_end_is_left_behind(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """A sink that does not end is replaced at once, and its remaining events are delivered once when it ends."""
    a, _, other = hubs
    a.hanging.clear()
    with running(config_of(tmp_path, kind="file", timeout=0.2)) as agent:
        a.lines.put(b"held\n")
        eventually(lambda: a.writing)
        changed = config_of(tmp_path, ('hub = "a"\nchannel =', 'hub = "other"\nchannel ='), kind="file", timeout=0.2)
        agent.reload(changed)
        assert agent.channels["c1"].origins is None
        a.lines.put(b"next\n")
        eventually(lambda: other.delivered == [b"next"])
        a.failing = True
        a.hanging.set()
        eventually(lambda: other.delivered == [b"next", b"held"])
        assert a.delivered == []


def test_a_file_channel_is_changed_while_its_sink_hangs(tmp_path: Path, hubs: tuple[Hub, ...]) -> None:
    """A file channel is replaced though its sink hangs, and the events that it took are delivered from the new one."""
    a, _, other = hubs
    a.hanging.clear()
    with running(config_of(tmp_path, kind="file", timeout=0.2)) as agent:
        a.lines.put(b"held\n")
        eventually(lambda: a.writing)
        changes = ('"file"', '"file"\ncapacity = 9'), ('hub = "a"\nchannel =', 'hub = "other"\nchannel =')
        agent.reload(config_of(tmp_path, *changes, kind="file", timeout=0.2))
        a.lines.put(b"next\n")
        eventually(lambda: other.delivered == [b"held", b"next"])
        a.failing = True
        a.hanging.set()
        eventually(lambda: agent.channels["c1"].held == 0)
        assert other.delivered == [b"held", b"next"]
