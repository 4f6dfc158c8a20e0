"""The parser of all commands: help, examples, suggestions, exit codes and completion."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from producer.agent.config.units import UNITS
from producer.cli import main
from producer.cli.arguments import agent as agent_arguments
from producer.cli.arguments import ship as ship_arguments
from producer.cli.arguments.target import FORMATS
from producer.cli.commands import COMMANDS, build_parser
from producer.cli.exit_codes import MEANINGS, ExitCode
from producer.cli.parsing import subparsers_of
from producer.ship.command import ENGINES
from producer.ship.files.plan import PARTITION_BYTES
from producer.ship.job import ACK_TIMEOUT, LOCAL_MASTER, MAX_LINE_BYTES
from producer.ship.lines.parsers import PARSER_NAMES
from producer.ship.options import INTERVAL, SETTLE

ROOT = Path(__file__).parents[2]


def ended(*arguments: str) -> int:
    """Run a command that argparse ends, and return its exit code."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    return int(exit_.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serv"], "producer: no such command 'serv': did you mean serve? see producer --help\n"),
        (["serve", "--prot", "1"], "producer serve: unknown flag --prot: did you mean --port? see"),
        (["ship", "--endpont=x"], "producer ship: unknown flag --endpont: did you mean --endpoint? see"),
        (["ship", "--regex", "x"], "producer ship: unknown flag --regex: did you mean --pattern? see"),
        (["search", "--url=x"], "producer search: unknown flag --url: did you mean --endpoint? see"),
        (["agent", "--confg", "x"], "producer agent: unknown flag --confg: did you mean --config? see"),
        (["channel", "inspct", "x"], "producer channel: no such command 'inspct': did you mean inspect? see"),
        (["agent", "unit", "sytemd"], "no such choice 'sytemd': did you mean systemd? see"),
        (["serve", "more"], "producer serve: superfluous argument 'more'; see producer serve --help"),
        (
            ["agent", "check", "a.toml"],
            "producer agent check: superfluous argument 'a.toml'; give a file as --config a.toml",
        ),
        (["agent", "a.toml"], "producer agent: no such command 'a.toml'; give a file as --config a.toml; see"),
        (["agent", "a.properties"], "give a file as --flume a.properties; see producer agent --help"),
        (["send", "hello", "--time", "1700000000"], "producer send: unknown flag --time: did you mean --timeout? see"),
        (["tail", "-n", "-1"], "-n/--lines: must be an integer, at least 0, of at most 18 digits, got '-1'; see"),
        (["tail", "-n", "\u00b2"], "must be an integer, at least 0, of at most 18 digits, got '\u00b2'; see"),
        (["tail", "-n", "9" * 5000], f"of at most 18 digits, got '{'9' * 199}…; see"),
        (["send", "--timeout", "1e300"], "seconds above 0, at most 31536000 (a year), got '1e300'; see"),
        (["channel", "drain", "--timeout", "1" * 300], f"from 0 to 31536000 (a year), got '{'1' * 199}…; see"),
        (["create"], "required: project or logstore; see producer create --help"),
        (["channel"], "required: ACTION, one of inspect, verify,"),
        (["completion"], "required: shell, one of bash, zsh, fish; see producer completion --help"),
        (
            ["agent", "run", "--config", "a.toml"],
            "no such command 'run'; to run it, give none: producer agent --config FI",
        ),
        (["serve", "--port", "0x1"], "at least 0, of at most 18 digits, got '0x1'; see"),
        (["serve", "--zzzz"], "producer serve: unknown flag --zzzz; see producer serve --help"),
        (
            ["check", "--timeout", "inf"],
            "producer check: argument --timeout: must be a number of seconds above 0, at mos",
        ),
    ],
)
def test_a_wrong_name_is_reported_in_one_line_with_the_closest_one(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong name is reported in one line with the closest one, unknown options before missing ones, and exits with
    2.
    """
    assert ended(*arguments) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_behind_two_dashes_nothing_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """After ``--`` a word with dashes is an argument."""
    assert main(["send", "--", "--colour is no flag", "--nor-this"]) == ExitCode.USAGE
    assert "no project: set LOGHUB_PROJECT" in capsys.readouterr().err


def test_the_command_without_arguments_prints_the_help_on_the_standard_error_and_exits_with_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command without arguments prints the help on the standard error, and exits with 2."""
    assert main([]) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert not out
    assert all(f"    {name}" in err for name in COMMANDS)


@pytest.mark.parametrize(
    ("asked", "shown"), [(["help"], "usage: producer [-h]"), (["help", "send"], "usage: producer send [-h]")]
)
def test_help_and_help_command_print_the_help(asked: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``help`` and ``help COMMAND`` print the help."""
    assert ended(*asked) == 0
    assert capsys.readouterr().out.startswith(shown)


def test_every_help_has_examples() -> None:
    """Every command's and action's help has examples that begin with the command."""
    for name, parser in subparsers_of(build_parser(COMMANDS)).items():
        for each in (parser, *subparsers_of(parser).values()):
            text = each.format_help()
            assert f"producer {name}" in text.partition("examples:\n")[2], each.prog


def test_help_needs_no_extra_and_little_time() -> None:
    """The help of no command imports an extra's library or the modules of the work."""
    program = (
        "import contextlib, io, sys; from producer.cli import main\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main([name, '--help'])\n"
        "heavy = {'rich', 'pyspark', 'pyarrow', 'google', 'starlette', 'requests', 'producer.ship', 'producer.agent',\n"
        "         'producer.channels', 'producer.client', 'logging', 'sqlite3', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *COMMANDS], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"


def test_commands_that_ask_loghub_need_no_extra() -> None:
    """The commands that query LogHub import only the core's libraries."""
    program = (
        "import sys\n"
        "for name in ('google', 'rich', 'pyarrow', 'pyspark', 'starlette', 'pandas'): sys.modules[name] = None\n"
        "from producer.cli import main\n"
        "where = ['--endpoint=http://127.0.0.1:1', '--access-key-id=i', '--access-key-secret=s', '-p=p', '-l=l']\n"
        "for words in (['search'], ['pull'], ['send', 'x', '--timeout=0.1'], ['check']):\n"
        "    print(main([*words, *where, '--log-level=ERROR']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["1"] * 4, done.stderr
    assert "pip install" not in done.stderr


def test_the_defaults_in_the_help_are_those_of_the_work() -> None:
    """The defaults in the help are those of the work."""
    assert tuple(UNITS) == agent_arguments.UNITS
    here = ship_arguments
    assert (here.ENGINES, here.PARSER_NAMES) == (ENGINES, PARSER_NAMES)
    assert (here.LOCAL_MASTER, here.ACK_TIMEOUT) == (LOCAL_MASTER, ACK_TIMEOUT)
    assert (here.INTERVAL, here.SETTLE) == (INTERVAL, SETTLE)
    assert (here.PARTITION_BYTES, here.MAX_LINE_BYTES) == (PARTITION_BYTES, MAX_LINE_BYTES)


def test_every_command_that_prints_rows_or_a_report_has_output_with_the_same_formats() -> None:
    """Every command that prints rows or a report has ``--output`` with the same formats."""
    parsers = dict[str, argparse.ArgumentParser]()
    for name, parser in subparsers_of(build_parser(COMMANDS)).items():
        parsers |= {name: parser} | {f"{name} {each}": of for each, of in subparsers_of(parser).items()}
    flags = {
        name: {flag: action for action in of._actions for flag in action.option_strings} for name, of in parsers.items()
    }
    assert [name for name, of in flags.items() if set(of) & {f"--{form}" for form in FORMATS}] == []
    forms = {name: of["--output"].choices for name, of in flags.items() if "--output" in of}
    whole = {name for name, choices in forms.items() if choices == FORMATS}
    assert whole == {*("search", "count", "sql", "context", "tail", "pull", "projects", "logstores")} | {
        *("channel peek", "channel export")
    }
    reports = {name: choices for name, choices in forms.items() if name not in whole}
    assert reports == dict.fromkeys(("channel inspect", "channel verify"), ("table", "json"))


def test_version_has_a_short_form(capsys: pytest.CaptureFixture[str]) -> None:
    """``-V`` is ``--version``."""
    assert ended("-V") == 0
    assert capsys.readouterr().out.startswith("producer ")


def test_exit_codes_are_documented() -> None:
    """The table of exit codes in the documents is that of the code, and the only one."""
    tables = [path.name for path in (ROOT / "docs").rglob("*.md") if "| exit code |" in path.read_text()]
    assert tables == []
    text = (ROOT / "docs/cli/index.md").read_text()
    for code, meaning in MEANINGS.items():
        assert f"| {code.value} | {meaning} |" in text
    assert set(MEANINGS) == set(ExitCode)
