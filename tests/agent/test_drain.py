"""``producer channel drain`` with a channel of an agent."""

from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Refusal
from producer.agent.flow.letters import marked, marks_of
from producer.cli import main
from producer.server import LogHubServer
from producer.testing import ManualClock

from .doubles import file_channel, opened


def _content(directory: str) -> dict[str, tuple[bytes, int]]:
    files = [path for path in Path(directory).rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_drain_leaves_the_batches_of_an_agent_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``drain`` refuses an agent's batches, says what can deliver them, and changes nothing."""
    with opened(file_channel(tmp_path)) as channel:
        channel.put(EventBatch.of_lines(b"a\nb\n"))
        directory = str(channel.channel.directory)  # type: ignore[attr-defined]
    before = _content(directory)
    with LogHubServer() as server:
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LOGHUB_ACCESS_KEY_SECRET", server.access_key_secret)
        assert main(["channel", "drain", directory, "--endpoint", server.endpoint]) == 2
    assert "run `producer agent`" in capsys.readouterr().err
    assert _content(directory) == before
    with opened(file_channel(tmp_path)) as channel:
        assert channel.held == 2


def test_drain_refuses_an_agents_dead_letters_with_their_reason_and_says_which_sink_can_deliver_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``drain`` refuses an agent's dead letters with their reason, and says which sink can deliver them."""
    marks = marks_of(Refusal(EventBatch.of_lines(b""), "400: no such field"), "archive", ManualClock())
    with opened(file_channel(tmp_path, "dead")) as channel:
        channel.put(marked(EventBatch.of_lines(b"a\n"), marks))
        directory = str(channel.channel.directory)  # type: ignore[attr-defined]
    before = _content(directory)
    assert main(["channel", "drain", directory, "--endpoint", "http://127.0.0.1:1"]) == 2
    told = capsys.readouterr().err
    for part in (
        "dead letters",
        "400: no such field",
        "[sinks.archive]",
        "channel = the name of the channel whose",
        "channel export",
    ):
        assert part in told
    assert _content(directory) == before
    assert main(["channel", "export", directory]) == 0
    exported = capsys.readouterr().out
    assert all(mark in exported for mark in ("failed_at", "attempts", "request_id", "400: no such field"))


def test_drain_names_the_channel_of_dead_letters_as_the_configuration_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``drain`` names the channel in ``STATE/channels/NAME/events`` NAME, not ``events``."""
    marks = marks_of(Refusal(EventBatch.of_lines(b""), "400: no such field"), "archive", ManualClock())
    with opened(file_channel(tmp_path / "channels", "dead")) as channel:
        channel.put(marked(EventBatch.of_lines(b"a\n"), marks))
    assert main(["channel", "drain", str(tmp_path / "channels/dead/events"), "--endpoint", "http://127.0.0.1:1"]) == 2
    assert 'channel = "dead",' in capsys.readouterr().err
