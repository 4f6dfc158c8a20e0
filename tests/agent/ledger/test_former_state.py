"""The state of agents before ledgers existed is taken over.

``former_state.tar.gz`` is the state of an agent that was killed. Its source ``r`` had put four batches into a file
channel, which had delivered all, and into a memory channel, which had delivered two. Its source ``e`` had put six
alternately into two channels. The file channel had delivered the first and held the third and the fifth. The memory
channel had delivered the second.
"""

import tarfile
from pathlib import Path

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml
from tests.support.waiting import eventually

from ..parts import Hub, plug_in

_AGENT = """
[agent]
state = "{state}"
[sources.r]
type = "feed"
hub = "r"
channels = ["q", "m"]
[sources.e]
type = "feed"
hub = "e"
channels = ["f", "g"]
selector = {{ type = "load_balancing" }}
"""
_CHANNEL = """
[channels.{name}]
type = "{kind}"
[sinks.{name}]
type = "keep"
hub = "{name}"
channel = "{name}"
"""


def _agent(state: Path, **kinds: str) -> Agent:
    text = _AGENT.format(state=state)
    for name, kind in kinds.items():
        free = 'type = "file"\nminimum_free_space = 0'
        text += _CHANNEL.format(name=name, kind=kind).replace('type = "file"', free)
    return Agent(parse_toml(text))


def _read_again(hub: Hub, count: int) -> None:
    """Feed lines from the first byte, as a restarted source does."""
    hub.number = 0
    for number in range(1, count + 1):
        hub.lines.put(b"%d\n" % number)


def test_the_positions_of_a_former_state_are_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former offsets count: nothing is lost, and nothing is duplicated in this start or the next."""
    r, e, q, m, f, g = plug_in(monkeypatch, *"reqmfg")
    with tarfile.open(Path(__file__).with_name("former_state.tar.gz")) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 is the first that has it
        archive.extractall(tmp_path)
    for _ in range(2):
        agent = _agent(tmp_path, q="file", m="memory", f="file", g="memory")
        agent.start()
        try:
            _read_again(r, 4)
            _read_again(e, 6)
            eventually(lambda: r.number == 4 and e.number == 6 and agent.delivered())
        finally:
            assert agent.stop(10)
    assert (q.delivered, m.delivered) == ([], [b"3", b"4"])
    assert sorted(f.delivered + g.delivered) == [b"3", b"4", b"5", b"6"]


def test_a_channel_that_goes_with_the_former_state_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If memory channels are removed with the upgrade, their undelivered events are read again."""
    r, e, q, f = plug_in(monkeypatch, *"reqf")
    with tarfile.open(Path(__file__).with_name("former_state.tar.gz")) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 is the first that has it
        archive.extractall(tmp_path)
    monkeypatch.setattr(f"{__name__}._AGENT", _AGENT.replace(', "m"', "").replace(', "g"', ""))
    agent = _agent(tmp_path, q="file", f="file")
    agent.start()
    try:
        assert [agent._ledgers.of(name).ends(f"{name}/feed") for name in "re"] == [[2], [3, 4, 5]]
        _read_again(r, 4)
        _read_again(e, 6)
        eventually(lambda: r.number == 4 and e.number == 6 and agent.delivered())
    finally:
        assert agent.stop(10)
    assert (q.delivered, f.delivered) == ([b"3", b"4"], [b"3", b"5", b"4", b"6"])
