"""The commands in ``docs/cli/index.md`` do what the page says."""

import io
import re
import shlex
from pathlib import Path

import pytest

from producer.cli import main
from producer.cli.commands import COMMANDS
from producer.server import LogHubServer

DOCUMENT = (Path(__file__).parents[2] / "docs/cli/index.md").read_text()
TOUR = re.findall(r"^```text\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)[0]


def test_every_command_is_in_the_table() -> None:
    """The page's table has every command, and no other."""
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENT.partition("## A tour")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(COMMANDS)


def test_the_tour_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line of the tour runs, and finds what it sent."""
    ran = set[str]()
    with LogHubServer() as server:
        keys = {"ID": server.access_key_id, "SECRET": server.access_key_secret}
        for name, value in {**{f"ACCESS_KEY_{key}": keys[key] for key in keys}, "ENDPOINT": server.endpoint}.items():
            monkeypatch.setenv(f"LOGHUB_{name}", value)
        for name, value in re.findall(r"LOGHUB_(PROJECT|LOGSTORE)=(\w+)", TOUR):
            monkeypatch.setenv(f"LOGHUB_{name}", value)
        for line in TOUR.partition("\n\n")[2].splitlines():
            words = shlex.split(line, comments=True)
            given = words[1].encode().decode("unicode_escape") if words[:1] == ["printf"] else ""
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
            command = (
                [word for word in words[words.index("producer") + 1 :] if word not in (">", "/dev/null")]
                if words
                else []
            )
            if command:
                assert main(command) == 0, capsys.readouterr().err
                ran.add(command[0])
        assert server.count("demo", "app") == 5
    assert ran == set(COMMANDS) - {"serve", "ship", "agent", "channel", "completion", "context"}
    assert "web-1" in capsys.readouterr().out
