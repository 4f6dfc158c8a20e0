"""``producer agent test`` on the command line."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from producer.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent" / "formats.toml"


def test_the_tests_of_an_example_succeed_without_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command runs the tests of a file whose keys are not set: 0 if all succeed, 1 with the differences if one
    fails.
    """
    for name in ("LOGHUB_ENDPOINT", "LOGHUB_ACCESS_KEY_ID", "LOGHUB_ACCESS_KEY_SECRET"):
        monkeypatch.delenv(name, raising=False)
    assert main(["agent", "test", "--config", str(EXAMPLE)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "ok      nested JSON\nok      text, with a zone\n2 tests succeeded\n"
    assert "LOGHUB_ENDPOINT is not set" in printed.err
    wrong = tmp_path / "agent.toml"
    wrong.write_text(EXAMPLE.read_text().replace('level = "WARN"', 'level = "INFO"'))
    assert main(["agent", "test", "--config", str(wrong)]) == 1
    told = capsys.readouterr().out
    assert "header level\n      expected 'INFO'\n      got      'WARN'\n" in told
    assert told.endswith("1 of 2 tests failed\n")
    assert list(tmp_path.iterdir()) == [wrong]


def test_sample_lines_show_each_stage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With a source, the lines of the standard input or a file are shown after each stage, with the sink's form."""
    line = b"[2026-11-27 22:00:00] WARN disk is \x1b[31mfull\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(line)))
    assert main(["agent", "test", "--config", str(EXAMPLE), "text", "--header", "file=/a"]) == 0
    shown = capsys.readouterr().out
    for text in ("event 1 of 1", "file = '/a'", "+ level = 'WARN'", "-> queue", 'loghub: {"__time__": 1795788000'):
        assert text in shown
    assert "\x1b" not in shown
    (tmp_path / "lines").write_bytes(line)
    assert main(["agent", "test", "--config", str(EXAMPLE), "text", "--input", str(tmp_path / "lines")]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tex"], "there is no source 'tex'; did you mean 'text'?"),
        (["text", "--input", "/nowhere/x"], "/nowhere/x: No such file or directory"),
        (["text", "--header", "x"], "--header must be NAME=VALUE, got 'x'"),
        (["--input", "x"], "--input and --header need the name of a source"),
    ],
)
def test_a_wrong_argument_is_named(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown source, a missing file and a header without a value end with 2 and a message."""
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    assert main(["agent", "test", "--config", str(EXAMPLE), *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_file_without_tests_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Without tests and without a source there is nothing to do: 2."""
    assert main(["agent", "test", "--config", str(EXAMPLE.parent / "nginx.toml")]) == 2
    assert "has no [[tests]]" in capsys.readouterr().err
