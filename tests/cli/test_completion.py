"""Completion of the command line in bash, zsh and fish."""

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from producer.cli import main
from producer.cli.commands import COMMANDS, build_parser
from producer.cli.completion import SHELLS
from producer.cli.parsing import subparsers_of
from tests.programs import need

# The words before the cursor, and what the shell makes of them.
_COMPLETED = [
    ("ser", "serve"),
    ("channel insp", "inspect"),
    ("--log-level INFO channel inspect --data", "--data-directory"),
    ("agent unit sys", "systemd"),
    ("agent check --config ./one-fi", "./one-file.toml"),
]


def completion_script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Write the script of a shell, and a file to complete, to a folder; return the script's path."""
    need(shell)
    assert main(["completion", shell]) == 0
    (folder / "_producer").write_text(capsys.readouterr().out)
    (folder / "one-file.toml").touch()
    return str(folder / "_producer")


def typed(command: list[str], prepare: str, line: str, wanted: str, folder: Path) -> None:
    """Type a line and a tab into an interactive shell, and wait until it shows the wanted word.

    :raises AssertionError: it does not within 20 seconds.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, {**os.environ, "TERM": "dumb", "HISTFILE": "/dev/null"})
    try:
        os.write(terminal, f"{prepare}; PS1='rea''dy> '\n".encode())
        until(terminal, b"ready> ")
        os.write(terminal, f"producer {line}\t".encode())
        until(terminal, f"{line.rpartition(' ')[0]} {wanted}".lstrip().encode())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def until(terminal: int, wanted: bytes) -> bytes:
    """Read until the wanted bytes came."""
    shown, end = b"", time.monotonic() + 20
    while wanted not in shown.replace(b"\a", b""):
        assert select.select([terminal], [], [], max(0, end - time.monotonic()))[0], shown
        shown += os.read(terminal, 65_536)
    return shown


@pytest.mark.parametrize(
    ("shell", "command", "prepare"),
    [
        ("bash", ["bash", "--norc", "--noprofile", "-i"], "source {0}/_producer"),
        ("zsh", ["zsh", "-f", "-i"], "fpath=({0} $fpath); autoload -Uz compinit; compinit -u -D"),
    ],
)
def test_bash_and_zsh_complete_words_and_file_names(
    shell: str, command: list[str], prepare: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interactive bash or zsh completes commands, actions, options after global ones, choices and file names."""
    completion_script(shell, tmp_path, capsys)
    for line, wanted in _COMPLETED:
        typed(command, prepare.format(tmp_path), line, wanted, tmp_path)


def test_fish_completes_words_and_file_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """fish completes commands, actions, options after global ones, choices and file names."""
    script = completion_script("fish", tmp_path, capsys)
    for line, wanted in _COMPLETED:
        ask = ["fish", "-c", "source $argv[1]; complete -C $argv[2]", script, f"producer {line}"]
        done = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert [row.partition("\t")[0] for row in done.stdout.splitlines()] == [wanted], line
        assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_the_completion_of_each_shell_has_every_command_and_action(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The completion of each shell has every command and action."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name, parser in subparsers_of(build_parser(COMMANDS)).items():
        assert name in script
        assert all(action in script for action in subparsers_of(parser))
