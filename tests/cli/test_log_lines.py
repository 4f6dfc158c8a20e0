"""No foreign text forges a line in a log or on a terminal: names of files, words of peers, answers of servers."""

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
    logger = logging.Logger("alone")  # noqa: LOG001  # pytest shall capture nothing of it: no process sends such text
    logger.addHandler(handler)
    return logger, out


def test_a_record_is_one_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    """With backslashes for all that a reader or a terminal takes for more than text, in arguments and in errors."""
    logger, out = log
    logger.error("%s cannot be read: %s", _EVIL, OSError(2, "No such file", _EVIL))
    (line,) = out.getvalue().splitlines()
    assert _SHOWN in line
    assert line.isprintable()


def test_lines_of_a_traceback_are_indented(log: tuple[logging.Logger, io.StringIO]) -> None:
    """So that none of them, whatever an error says, passes for a record."""
    logger, out = log
    try:
        raise ValueError(_EVIL)
    except ValueError:
        logger.exception("it failed", stack_info=True)
    first, *others = out.getvalue().split("\n")[:-1]
    assert first.endswith("it failed")
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    assert any(_FORGED in line for line in others)


def test_what_commands_say_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """On both outputs; a message of several lines has its others indented."""
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
    """Nor of verify, repair and export, nor of their errors."""
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


#: What prints more than lines: data, files and a help, of which nothing is foreign, or all is wanted as it is.
_BESIDE = {"output.py", "agent.py", "completion.py", "search.py", "serve.py", "__init__.py", "ship.py"}


def test_commands_print_at_one_place() -> None:
    """By the functions that make text printable."""
    folder = Path(producer.cli.__file__).parent
    found = {
        path.name
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    }
    assert found <= _BESIDE
