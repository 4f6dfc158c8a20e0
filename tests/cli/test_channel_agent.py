"""``producer channel`` for the directory of an agent's channel."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch, Position
from producer.channels import Event, FileChannel, FileKeys
from producer.cli import main

from ..agent.doubles import file_channel, opened
from .test_channel import key_file

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: its exit code, and what it printed."""

    def call(action: str, directory: Path, *arguments: str) -> tuple[int, str]:
        code = main(["channel", action, str(directory), *arguments])
        return code, capsys.readouterr().out

    return call


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of five batches of a hundred lines two were delivered; one event came over the network."""
    with opened(file_channel(tmp_path)) as channel:
        for number in range(5):
            lines = b"".join(b"line %d\n" % (100 * number + each) for each in range(100))
            channel.put(EventBatch.of_lines(lines, {"kind": "x"}, Position("logs/12.3.0.5.ab", 1000 * (number + 1))))
        channel.put(EventBatch.of_bodies([b"\xff"]))
        taking = channel.take(200, 1 << 20, 0)
        assert taking is not None
        taking.commit()
    return tmp_path / "c" / "events"


def _content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.name != "LOCK"}


def test_inspect_counts_the_events_in_the_batches(run: Run, directory: Path) -> None:
    """And what of each source waits, and how far it came; nothing is changed."""
    before = _content(directory)
    code, out = run("inspect", directory)
    assert code == 0
    assert "agent       4 batches with 301 events\n  source logs: 300 events wait\n" in out
    code, out = run("inspect", directory, "--output", "json")
    agent = json.loads(out)["agent"]
    assert (code, agent["events"], agent["positions"]) == (0, 301, {"logs/12.3.0.5.ab": 5000})
    assert _content(directory) == before


def test_a_channel_of_a_producer_is_not_an_agents(run: Run, tmp_path: Path) -> None:
    """Nothing is said of batches."""
    with opened(file_channel(tmp_path)) as channel, channel.channel.transaction() as transaction:
        transaction.put(Event({}, b"x"))
        transaction.commit()
    assert "agent" not in run("inspect", tmp_path / "c" / "events")[1].replace(str(tmp_path), "")


def test_verify_reads_each_batch(run: Run, directory: Path, tmp_path: Path) -> None:
    """One of which nothing can be made is told, with its number: exit code 1."""
    assert run("verify", directory) == (
        0,
        f"{directory}: every record checks out, 4 batches of an agent with 301 events\n",
    )
    with opened(file_channel(tmp_path)) as channel:
        for headers in ({"~count": "2", "~form": "lines"}, {"~count": "many"}, {"~count": "1", "~form": "ends"}):
            with channel.channel.transaction() as transaction:
                transaction.put(Event(headers, b"one\n"))
                transaction.commit()
    code, out = run("verify", directory)
    assert code == 1
    assert out.count("is no batch, though it says so") == 3
    assert "unreadable: event 7 is no batch, though it says so (it has 1 event, not 2)" in out
    assert "every record" not in out
    with opened(file_channel(tmp_path)) as channel:
        assert channel.held == 301 + 4  # an agent opens it all the same


def test_notes_that_cannot_be_read_are_told(run: Run, directory: Path) -> None:
    """They hold the names of the channel's numbers."""
    for path in directory.glob("notes.db*"):
        path.write_bytes(b"no database at all" * 100)
    code, out = run("inspect", directory)
    assert code == 0
    assert f"notes: {directory}/notes.db cannot be read: file is not a database" in out


def test_repair_tells_what_of_the_agents_is_left(run: Run, directory: Path) -> None:
    """A damaged batch is taken out; those that are left are counted."""
    [segment] = directory.glob("log-*")
    segment.write_bytes(segment.read_bytes().replace(b"line 250\n", b"LINE 250\n"))
    code, out = run("repair", directory)
    assert "agent       3 batches with 201 events" in out
    assert "lost: 1 event, by its sequence number" in out
    assert code == 0


def test_peek_shows_the_events_in_the_batches(run: Run, directory: Path) -> None:
    """Each with its headers, and the number of its batch."""
    _, out = run("peek", directory, "--limit", "1000")
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0] == {"__event__": "3", "kind": "x", "body": "line 200"}
    assert rows[-1] == {"__event__": "6", "body": "\\xff"}
    assert len(rows) == 301


@pytest.mark.parametrize("state", ["", "agent"], ids=["channels", "state"])
def test_drain_all_tells_what_waits_in_an_agents_channels(
    state: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And who delivers it; nothing is changed, whether the folder of channels is named or the agent's state."""
    base = tmp_path
    if state:
        base = tmp_path / state
        base.mkdir()
        (tmp_path / "c").rename(tmp_path / "held")
        (base / "channels").mkdir()
        (tmp_path / "held").rename(base / "channels/c")
        directory = base / "channels/c/events"
    before = _content(directory)
    assert main(["channel", "drain", "--all", str(base), "--endpoint", "http://127.0.0.1:1"]) == 2
    said = capsys.readouterr().err
    assert "the channels of an agent" in said
    assert "`producer agent` delivers them; c: 301 events" in said
    assert _content(directory) == before


def test_drain_all_counts_what_is_encrypted_with_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one it says which option is missing."""
    keys = key_file(tmp_path / "keys.json")
    (tmp_path / "c").mkdir()
    channel = FileChannel(str(tmp_path / "c/events"), encryption=FileKeys(str(keys)))
    with channel.transaction() as transaction:
        transaction.put(Event({"~count": "2", "~form": "lines"}, b"one\ntwo\n"))
        transaction.commit()
    channel.close()
    command = ["channel", "drain", "--all", str(tmp_path), "--endpoint", "http://127.0.0.1:1"]
    assert main(command) == 2
    assert "c: not counted, a key is missing (--key-file)" in capsys.readouterr().err
    assert main([*command, "--key-file", str(keys)]) == 2
    assert "c: 2 events" in capsys.readouterr().err
