"""``producer channel`` works on the directory of an agent's channel."""

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
    """Return a function that runs the command, and returns the exit code and the output."""

    def call(action: str, directory: Path, *arguments: str) -> tuple[int, str]:
        code = main(["channel", action, str(directory), *arguments])
        return code, capsys.readouterr().out

    return call


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a channel with five batches of a hundred lines, two of them delivered, and one event from the network."""
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
    """`inspect` counts the events in the batches, and shows each source's waiting events and offset; it changes
    nothing.
    """
    before = _content(directory)
    code, out = run("inspect", directory)
    assert code == 0
    assert "agent       4 batches with 301 events\n  source logs: 300 events wait\n" in out
    code, out = run("inspect", directory, "--output", "json")
    agent = json.loads(out)["agent"]
    assert (code, agent["events"], agent["positions"]) == (0, 301, {"logs/12.3.0.5.ab": 5000})
    assert _content(directory) == before


def test_a_channel_of_a_producer_is_not_an_agents(run: Run, tmp_path: Path) -> None:
    """`inspect` of a producer's channel mentions no batches."""
    with opened(file_channel(tmp_path)) as channel, channel.channel.transaction() as transaction:
        transaction.put(Event({}, b"x"))
        transaction.commit()
    assert "agent" not in run("inspect", tmp_path / "c" / "events")[1].replace(str(tmp_path), "")


def test_verify_reads_each_batch(run: Run, directory: Path, tmp_path: Path) -> None:
    """`verify` reports each batch that cannot be decoded by its number, and exits with 1."""
    assert run("verify", directory) == (
        0,
        f"{directory}: every record is valid, 4 batches of an agent with 301 events\n",
    )
    with opened(file_channel(tmp_path)) as channel:
        for headers in ({"~count": "2", "~form": "lines"}, {"~count": "many"}, {"~count": "1", "~form": "ends"}):
            with channel.channel.transaction() as transaction:
                transaction.put(Event(headers, b"one\n"))
                transaction.commit()
    code, out = run("verify", directory)
    assert code == 1
    assert out.count("is marked as a batch but is not one") == 3
    assert "unreadable: event 7 is marked as a batch but is not one (it has 1 event, not 2)" in out
    assert "every record" not in out
    with opened(file_channel(tmp_path)) as channel:
        assert channel.held == 301 + 4  # an agent opens it anyway


def test_verify_reports_notes_that_cannot_be_read(run: Run, directory: Path) -> None:
    """`verify` reports notes that cannot be read."""
    for path in directory.glob("notes.db*"):
        path.write_bytes(b"no database at all" * 100)
    code, out = run("inspect", directory)
    assert code == 0
    assert f"notes: {directory}/notes.db cannot be read: file is not a database" in out


def test_repair_removes_a_damaged_batch_and_counts_the_remaining_ones(run: Run, directory: Path) -> None:
    """`repair` removes a damaged batch, and counts the remaining ones."""
    [segment] = directory.glob("log-*")
    segment.write_bytes(segment.read_bytes().replace(b"line 250\n", b"LINE 250\n"))
    code, out = run("repair", directory)
    assert "agent       3 batches with 201 events" in out
    assert "lost: 1 event, by its sequence number" in out
    assert code == 0


def test_peek_shows_the_events_in_the_batches(run: Run, directory: Path) -> None:
    """`peek` shows the events of each batch with their headers and the batch's number."""
    _, out = run("peek", directory, "--limit", "1000")
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows[0] == {"__event__": "3", "kind": "x", "body": "line 200"}
    assert rows[-1] == {"__event__": "6", "body": "\\xff"}
    assert len(rows) == 301


@pytest.mark.parametrize("state", ["", "agent"], ids=["channels", "state"])
def test_drain_all_shows_the_waiting_events_of_an_agents_channels_and_how_to_deliver_them(
    state: str, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`drain --all` shows the waiting events of an agent's channels and how to deliver them; it changes nothing."""
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


def test_drain_all_counts_encrypted_events_with_their_key_and_names_the_option_if_the_key_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`drain --all` counts encrypted events with their key, and names the option if the key is missing."""
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
