"""Foreign text, such as names of files and answers of servers, cannot forge a line in a log or on a terminal."""

import ast
import io
import logging
import os
from pathlib import Path

import pytest

import producer.cli
from producer.channels import Event, FileChannel
from producer.cli import main
from producer.cli.log_lines import FORM, LogLines
from producer.cli.output import say, tell, tell_error
from producer.text.printable import message

_FORGED = "2026-01-01 00:00:00,000 ERROR forged"
_EVIL = f"a\n{_FORGED} \x1b[31m\r\x85\u2028\u202e\udce9.log"
_SHOWN = f"a\\n{_FORGED} \\x1b[31m\\r\\x85\\u2028\\u202e\\xe9.log"


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(LogLines(FORM))
    logger = logging.Logger("alone")  # noqa: LOG001  # outside of the tree, so that pytest does not capture and print the unescaped text
    logger.addHandler(handler)
    return logger, out


def test_a_record_is_one_line_with_control_characters_of_arguments_and_errors_escaped(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    """A record is one line, with control characters of arguments and errors escaped."""
    logger, out = log
    logger.error("%s cannot be read: %s", _EVIL, OSError(2, "No such file", _EVIL))
    (line,) = out.getvalue().splitlines()
    assert _SHOWN in line
    assert line.isprintable()


def test_lines_of_a_traceback_are_indented(log: tuple[logging.Logger, io.StringIO]) -> None:
    """The lines of a traceback are indented, so that none looks like a record."""
    logger, out = log
    try:
        raise ValueError(_EVIL)
    except ValueError:
        logger.exception("it failed", stack_info=True)
    first, *others = out.getvalue().split("\n")[:-1]
    assert first.endswith("it failed")
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    assert any(_FORGED in line for line in others)


def test_the_output_of_commands_is_printable_on_both_streams_with_continuation_lines_indented(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The output of commands is printable on both streams, with continuation lines indented."""
    say(_EVIL)
    tell(_EVIL)
    tell_error("x", f"1 problem\n  {_EVIL}")
    out, err = capsys.readouterr()
    assert out == f"{_SHOWN}\n"
    assert not [line for line in err.split("\n") if line.startswith(_FORGED)]
    assert all(line.isprintable() for line in err.split("\n"))
    assert message("a\nb\n  c") == "a\n  b\n  c"


def test_a_directory_forges_no_line_of_inspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory's name forges no line of inspect, verify, repair, export and their errors."""
    monkeypatch.setattr(logging.getLogger("loghub"), "propagate", False)
    directory = os.fspath(tmp_path / _EVIL.replace("/", "_"))
    with FileChannel(directory, minimum_free_space=0) as channel, channel.transaction() as transaction:
        transaction.put(Event({}, b"x"))
        transaction.commit()
    for action in ("inspect", "verify", "repair"):
        main(["channel", action, directory])
    main(["channel", "drain", directory, "--endpoint", "http://127.0.0.1:1"])
    out, err = capsys.readouterr()
    assert _SHOWN in out
    assert not [line for line in (out + err).split("\n") if line.startswith(_FORGED) or not line.isprintable()]


#: Modules that print unescaped text: data, files and helps, without foreign text, or with all of it wanted.
_BESIDE = {"output.py", "agent.py", "completion.py", "search.py", "serve.py", "__init__.py", "ship.py"} | {
    "agent_top.py"
}


def test_commands_print_only_by_the_functions_that_escape_text() -> None:
    """Commands print only by the functions that escape text."""
    folder = Path(producer.cli.__file__).parent
    found = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert found <= _BESIDE
