from pathlib import Path

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml
from producer.agent.events.interfaces import Lag
from tests.support.waiting import eventually

from ..parts import plug_in
from .following import Tail


def test_while_the_channel_is_full_the_lag_has_the_unread_bytes_and_their_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the channel is full the lag has the unread bytes and their age; when all is put it is 0."""
    (hub,) = plug_in(monkeypatch, "a")
    hub.hanging.clear()
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 1023 + b"\n")
    text = (
        f'[agent]\nstate = "{tmp_path}/state"\n[sources.r]\ntype = "taildir"\npaths = ["{tmp_path}/*.log"]\n'
        'channels = ["c"]\n[channels.c]\ntype = "memory"\ncapacity = 1\n'
        '[sinks.k]\ntype = "keep"\nhub = "a"\nchannel = "c"\n'
    )
    agent = Agent(parse_toml(text))
    assert agent.lag("r") is None
    agent.start()
    try:
        eventually(lambda: hub.writing)
        assert agent.lag("r") == Lag(bytes=0, seconds=0.0)
        with log.open("ab") as file:
            file.write(b"y" * 2047 + b"\n")
        eventually(lambda: agent.lag("r").bytes == 2048 and agent.lag("r").seconds > 0)
        hub.hanging.set()
        eventually(lambda: agent.lag("r") == Lag(bytes=0, seconds=0.0))
    finally:
        hub.hanging.set()
        assert agent.stop(60)
    assert len(hub.delivered) == 2


def test_the_lag_in_seconds_is_that_of_the_oldest_bytes(tmp_path: Path) -> None:
    """The lag in seconds is the age of the oldest unread bytes, since they were observed."""
    followed = Tail(tmp_path, settle=1000.0)
    log = followed.logs / "a.log"
    log.write_bytes(b"one\nha")
    followed.look()
    assert followed.follower.lag() == Lag(bytes=2, seconds=0.0)
    followed.clock.advance(5)
    assert followed.follower.lag() == Lag(bytes=2, seconds=5.0)
    log.write_bytes(b"one\nhalf")
    followed.look()
    log.write_bytes(b"one\nhalf\nmo")
    followed.look(2.0)
    assert followed.follower.lag() == Lag(bytes=2, seconds=2.0)
    log.write_bytes(b"one\nhalf\nmore\n")
    followed.look()
    assert followed.follower.lag() == Lag(bytes=0, seconds=0.0)
