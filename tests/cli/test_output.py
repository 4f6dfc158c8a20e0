"""The output of commands, colours and progress."""

import contextlib
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from producer.channels import FileChannel
from producer.cli import main, progress
from producer.cli.output import has_colours, plain, tell, tell_error, writer
from producer.cli.progress import Progress
from producer.cli.times import shown
from producer.server import LogHubServer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def printed(kind: str | None, *rows: dict[str, object], stream: bool = False) -> None:
    out = writer(kind, ("first",), stream=stream)
    out.write(rows)
    out.close()


def test_colours_are_for_terminals_that_want_them(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours are for terminals only, not for a dumb one, nor with ``NO_COLOR``."""
    assert has_colours(terminal)
    assert not has_colours(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colours(terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours(terminal)
    with contextlib.redirect_stdout(terminal):
        printed("table", {"a": 1})
    assert terminal.getvalue() == "a\n1\n"


def test_a_terminal_gets_a_table_with_a_bold_head(terminal: Terminal) -> None:
    """A terminal gets a table with a bold head: given columns first, the service's last, empty ones left out."""
    with contextlib.redirect_stdout(terminal):
        printed(None, {"__added__": "x", "b": 2, "first": "one", "empty": ""}, {"b": "wide value"})
    assert terminal.getvalue().splitlines() == [
        "\x1b[1mfirst  b           __added__\x1b[0m",
        "one    2           x",
        "       wide value",
    ]


def test_people_see_one_time_to_the_microsecond(capsys: pytest.CaptureFixture[str]) -> None:
    """A table shows one time to the microsecond; a field of the nanoseconds' name without them stays a field."""
    moment = {"__time__": "1700000000", "__time_ns_part__": "5678999"}
    printed("table", {**moment, "a": "1"}, {"__time__": "soon", "__time_ns_part__": "later", "a": "2"})
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["a", "__time__", "__time_ns_part__"]
    assert first.split() == ["1", *f"{shown('1700000000')}.005678".split()]
    assert second.split() == ["2", "soon", "later"]
    printed("table", {**moment, "a": "1"}, stream=True)
    assert ".005678 a=1\n" in capsys.readouterr().out
    printed("jsonl", {**moment})
    assert json.loads(capsys.readouterr().out) == moment


def test_an_error_is_red_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: Terminal
) -> None:
    """An error is red on a terminal only."""
    assert main(["search", "--from", "never"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["search", "--from", "never"]) == 2
    assert terminal.getvalue().startswith("producer search: \x1b[31m")


def test_a_terminal_obeys_nothing_of_a_log() -> None:
    """A table escapes control characters, line ends and changes of text direction, and cuts long values."""
    assert plain("a\x1b]0;x\x07\r\nb\u202e") == "a\\x1b]0;x\\x07\\r\\nb\\u202e"
    assert plain("grün 日本") == "grün 日本"
    assert plain({"n": 1}) == '{"n": 1}'


def test_a_value_of_a_hundred_characters_is_whole(terminal: Terminal) -> None:
    """A table shows a value of a hundred characters whole, and cuts a longer one."""
    with contextlib.redirect_stdout(terminal):
        printed("table", {"a": "x" * 100}, {"a": "y" * 101})
    assert f"{'x' * 100}\n" in terminal.getvalue()
    assert f"{'y' * 99}…\n" in terminal.getvalue()


@pytest.mark.parametrize("kind", ["table", "lines", "json", "jsonl", "csv"])
def test_no_form_of_output_lets_a_log_command_the_terminal(terminal: Terminal, kind: str) -> None:
    """Every output format escapes control characters in names, values and times on a terminal."""
    evil = "\x1b]0;evil\x07\x9b31m\u202e"
    with contextlib.redirect_stdout(terminal):
        printed("table" if kind == "lines" else kind, {"__time__": evil, evil: evil}, stream=kind == "lines")
    own = terminal.getvalue().replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert not set(own) & {"\x1b", "\x07", "\x9b", "\u202e"}
    if kind == "jsonl":
        assert json.loads(own) == {"__time__": evil, evil: evil}


def test_a_program_gets_csv_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """CSV that goes to a program is not escaped."""
    printed("csv", {"a": "\x1b[31m"})
    assert capsys.readouterr().out == "a\n\x1b[31m\n"


def test_no_message_commands_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Messages escape control characters of foreign text, and indent its further lines."""
    tell("one\x1b[31m\ntwo")
    tell_error("sql", "three\x9b\nfour")
    assert capsys.readouterr().err == "one\\x1b[31m\n  two\nproducer sql: three\\x9b\n  four\n"


def test_csv_reports_columns_that_are_not_in_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    """CSV reports columns that are not in its head."""
    out = writer("csv", ())
    out.write([{"a": 1}])
    out.write([{"a": 2, "late": "x"}])
    out.close()
    told = capsys.readouterr()
    assert told.out == "a\n1\n2\n"
    assert "left out columns that are not in the first rows: late" in told.err


@pytest.mark.parametrize("kind", ["jsonl", "csv", "table"])
def test_followed_logs_are_printed_at_once_without_a_buffer(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Followed logs are printed at once, without a buffer."""
    pipe = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BufferedWriter(pipe)))  # type: ignore[type-var]
    out = writer(kind, stream=True)
    out.write([{"__time__": "1700000000", "__topic__": "t", "a": "seen"}])
    assert b"seen" in pipe.getvalue()
    if kind == "table":  # for people: only the time and the sender's fields
        assert pipe.getvalue().decode() == f"{shown(1_700_000_000)} a=seen\n"


def test_a_value_that_is_nothing_is_shown_as_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A null value is printed as empty."""
    printed("table", {"a": None, "b": "x"}, {"a": 1, "b": "y"})
    assert capsys.readouterr().out == "a  b\n   x\n1  y\n"


def test_json_is_a_list_also_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON output without rows is an empty list."""
    printed("json")
    assert capsys.readouterr().out == "[]\n"
    printed("json", {"a": "ü"}, {"b": 1})
    assert capsys.readouterr().out == '[\n{"a": "ü"},\n{"b": 1}\n]\n'


def test_progress_is_one_rewritten_line_cleared_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is one rewritten line, cleared at the end, and not shown where rows go to the same terminal."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_INTERVAL_SECONDS", 0.0)
    with Progress("logs", rows=False) as told:
        told.add(1000, "shard 0")
        told.add(500)
    assert stream.getvalue() == "\r\x1b[K1,000 logs, shard 0\r\x1b[K1,500 logs\r\x1b[K"
    monkeypatch.setattr(sys, "stdout", Terminal())
    with Progress("logs") as told:
        told.add(1)
    assert stream.getvalue().count("\r") == 3


class Full(io.StringIO):
    """An output on a full disk, or above the user's quota."""

    def __init__(self, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self._error = error

    def write(self, _text: str) -> int:
        raise OSError(self._error, "No space left on device")


def test_a_full_or_closed_output_is_reported_in_one_sentence_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full or closed output is reported in one sentence without a traceback; with a closed one nothing starts."""
    full = "cannot write the output: No space left on device"
    for stream, told, code in (
        (Full(), full, 1),
        (Full(errno.EDQUOT), full, 1),
        (None, "the standard output is closed", 2),
    ):
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["completion", "bash"]) == code
        said = capsys.readouterr().err
        assert said.startswith("producer completion: ")
        assert told in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(("end", "code", "lines"), [("> /dev/full", 1, 1), ("| exec 0<&-", 141, 0)])
def test_an_output_that_fails_is_reported_once_and_not_again_when_the_interpreter_exits(
    end: str, code: int, lines: int
) -> None:
    """An output that fails is reported once, and not again when the interpreter exits."""
    command = f'"$@" completion zsh {end}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, "-m", "producer"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (code, lines), done.stderr


@pytest.mark.parametrize("more", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize("command", ["-V", "search --help", "ship --help", "channel inspect", "completion bash"])
def test_a_partial_write_of_the_output_exits_with_1_and_one_line_for_every_command(
    tmp_path: Path, command: str, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial write of the output exits with 1 and one line, for every command."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with FileChannel(tmp_path / "logs", minimum_free_space=0):
        pass
    words = [sys.executable, "-m", "producer", *command.split()]
    words += [str(tmp_path / "logs")] * command.startswith("channel")
    (tmp_path / "out").write_text("\n" * 4095)  # The limit is 4 KiB, and the output is appended to this.
    limited = ["bash", "-c", f'ulimit -f 4; "$@" >> {tmp_path}/out', "bash", *words]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, env=os.environ | more)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "cannot write the output: File too large" in done.stderr
    assert (tmp_path / "out").stat().st_size == 4096


class Ended(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_closed_pipe_as_with_head_exits_with_141_also_for_commands_that_print_tables_by_a_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A closed pipe, as with `head`, exits with 141, also for commands that print tables by a library."""
    with LogHubServer() as server:
        said = {"ENDPOINT": server.endpoint, "PROJECT": "x", "LOGSTORE": "x"}
        said |= {"ACCESS_KEY_ID": server.access_key_id, "ACCESS_KEY_SECRET": server.access_key_secret}
        for name, value in said.items():
            monkeypatch.setenv(f"LOGHUB_{name}", value)
        monkeypatch.setattr("sys.stdout", Ended())
        assert main(["completion", "bash"]) == 141
        assert main(["ship", __file__, "--dry-run"]) == 141


def test_a_help_is_shown_in_every_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The help is printed in a locale that lacks its characters."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    with pytest.raises(SystemExit) as end:
        main(["ship", "--help"])
    out.flush()
    assert end.value.code == 0
    assert b"\\u2026" in out.buffer.getvalue()  # type: ignore[attr-defined]


def test_a_system_error_such_as_an_unreadable_file_is_reported_in_one_sentence_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A system error, such as an unreadable file, is reported in one sentence, and exits with 1."""

    def refused(_args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "/etc/secret")

    monkeypatch.setattr("producer.cli.completion.run", refused)
    assert main(["completion", "bash"]) == 1
    assert capsys.readouterr().err == "producer completion: /etc/secret: Permission denied\n"


def test_an_output_without_the_letters_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An output that lacks characters gets backslash escapes."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("producer.cli.completion.run", lambda _args: printed("table", {"a": "日"}) or 0)
    assert main(["completion", "bash"]) == 0
    out.flush()
    assert out.buffer.getvalue() == b"a\n\\u65e5\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("encoding", "kind"), [("ascii", "json"), ("latin-1", "jsonl"), ("utf-8", "jsonl")])
def test_json_is_json_in_every_locale(monkeypatch: pytest.MonkeyPatch, encoding: str, kind: str) -> None:
    """JSON output is valid JSON in every locale."""
    row = {"a": "ü日😀", "b": "\x85"}
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr("sys.stdout", out)
    printed(kind, row)
    out.flush()
    found = json.loads(out.buffer.getvalue().decode(encoding))  # type: ignore[attr-defined]
    assert found == ([row] if kind == "json" else row)
