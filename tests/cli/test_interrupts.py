"""Commands end at Ctrl-C and SIGTERM with one line, no traceback, and the signal's exit code."""

import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer import Producer, ProjectConfig
from producer.channels import FileChannel
from producer.cli import main, send
from producer.cli.interrupts import Interrupts
from producer.testing import LogHubServer
from tests.support.waiting import allowed, eventually

#: The limit for a command to print something, or to end, seconds.
PATIENCE = 120.0

_KEYS = {"LOGHUB_ACCESS_KEY_ID": "id", "LOGHUB_ACCESS_KEY_SECRET": "secret"}


@pytest.fixture(autouse=True)
def default_actions() -> Iterator[None]:
    """Reset signals to their default actions, since commands keep ignored and handled signals."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Make a channel's directory with a record that no server accepts."""
    directory = tmp_path / "channel"
    project = ProjectConfig("p", endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="secret")
    producer = Producer(project, channel=FileChannel(directory, minimum_free_space=0))
    producer.send("p", "l", {"k": "v"})
    producer.close(1)
    return directory


@pytest.fixture
def draining(filled: Path) -> Iterator[subprocess.Popen[str]]:
    """Start ``producer channel drain`` against an endpoint that does not answer, and wait until it works."""
    command = [sys.executable, "-m", "producer", "channel", "drain", str(filled), "--endpoint=http://127.0.0.1:9"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | _KEYS
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "left" in line:
                break
        yield process
        process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_drain_that_a_signal_ends_says_that_undelivered_events_are_still_in_the_channel(
    draining: subprocess.Popen[str], number: signal.Signals, code: int
) -> None:
    """A drain that a signal ends says that undelivered events are still in the channel."""
    draining.send_signal(number)
    _, err = draining.communicate(timeout=PATIENCE)
    assert draining.returncode == code, err
    assert "interrupted: undelivered events are still in the channel" in err
    assert "Traceback" not in err


def _interrupted_in_imports(folder: Path, command: str, number: signal.Signals, *modules: str) -> tuple[int, str]:
    """Send a signal to a command while it imports one of these modules, and return its exit code and error output."""
    for name in modules:
        # Short sleeps: a signal just before a long one would be handled after it.
        text = "import time\nprint('importing', flush=True)\nwhile True:\n    time.sleep(0.05)\n"
        (folder / f"{name}.py").write_text(text)
    known = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    with subprocess.Popen(
        [sys.executable, "-m", "producer", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=known | {"PYTHONPATH": str(folder)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            process.send_signal(number)
            _, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return process.returncode, err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("command", ["serve", "channel inspect /nowhere"])
def test_command_that_is_still_imported_ends_with_one_line(
    command: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    """A signal while modules are imported prints one line without a traceback."""
    # The imports of the server and of channels. Coverage would import sqlite3 before the command starts.
    ended, err = _interrupted_in_imports(tmp_path, command, number, "starlette", "sqlite3")
    assert ended == code, err
    words = {
        signal.SIGINT: "interrupted",
        signal.SIGTERM: "terminated",
        signal.SIGHUP: "ended with its terminal (SIGHUP)",
    }
    assert err.splitlines() == [f"producer {command.split(maxsplit=1)[0]}: {words[number]}"]


@pytest.mark.parametrize("command", ["count", "channel"])
def test_command_that_has_imported_nothing_yet_ends_with_one_line(command: str, tmp_path: Path) -> None:
    """Ctrl-C before the signal handlers exist prints no traceback, because slow imports come later."""
    ended = _interrupted_in_imports(tmp_path, command, signal.SIGINT, "typing")
    assert ended == (130, "producer: interrupted\n")


def _texts(server: LogHubServer) -> list[str]:
    return [dict(log.contents)["content"] for log in server.logs("my-project", "app")]


def test_send_shuts_down_gracefully_at_sighup_and_continues_with_nohup() -> None:
    """`send` shuts down gracefully at SIGHUP, and continues with `nohup`."""
    with LogHubServer() as server:
        command = ["send", "--endpoint", server.endpoint, "--project", "my-project", "--logstore", "app"]
        keys = {"LOGHUB_ACCESS_KEY_ID": server.access_key_id, "LOGHUB_ACCESS_KEY_SECRET": server.access_key_secret}
        for ignored, count, code in ((False, 1, 129), (True, 2, 0)):
            told = "import signal, sys; from producer.cli import main; print('up', flush=True);"
            told += f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'}); sys.exit(main())"
            with subprocess.Popen(
                [sys.executable, "-c", told, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | keys,
            ) as process:
                assert process.stdin is not None
                process.stdin.write("first\n")
                process.stdin.flush()
                eventually(lambda count=count: len(_texts(server)) == count)
                process.send_signal(signal.SIGHUP)
                if ignored:
                    process.stdin.write("more\n")
                _, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == code, err
        assert _texts(server) == ["first", "first", "more"]


@pytest.mark.parametrize("command", ["agent", "completion"])
def test_a_signal_that_comes_while_the_interpreter_exits_does_not_change_the_exit_code(
    tmp_path: Path, command: str
) -> None:
    """A signal while the interpreter exits does not change the exit code of a command that has finished."""
    config = tmp_path / "agent.toml"
    config.write_text(
        '[sources.s]\ntype = "sequence"\ntotal_events = 1\nchannels = ["c"]\n[channels.c]\ntype = "memory"\n'
        '[sinks.k]\ntype = "null"\nchannel = "c"\n'
    )
    arguments = {"agent": ["--until-done", "--config", str(config)], "completion": ["bash"]}[command]
    numbers = f"for number in ({int(signal.SIGTERM)}, {int(signal.SIGINT)}, {int(signal.SIGHUP)})"
    program = "import atexit, os, sys; from producer.cli import main;"
    program += f"atexit.register(lambda: [os.kill(os.getpid(), number) {numbers}]); sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", program, command, *arguments], capture_output=True, check=False, timeout=PATIENCE
    )
    assert ended.returncode == 0, ended.stderr


def test_send_that_is_interrupted_waits_a_second_for_an_absent_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupted `send` waits a second for accepted logs, and counts the undelivered ones."""

    def logs(*_: object) -> Iterator[tuple[int, dict[str, object]]]:
        yield 1, {"content": "x"}
        raise KeyboardInterrupt

    monkeypatch.setattr(send, "_logs", logs)
    for name, value in _KEYS.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    assert main(["send", "--endpoint", "http://127.0.0.1:9", "--project", "my-project", "--logstore", "app"]) == 130
    assert time.monotonic() - began < allowed(8)
    err = capsys.readouterr().err
    assert "waiting up to 1 s for accepted logs to be delivered" in err
    assert "1 not delivered" in err


def test_a_repeated_signal_within_half_a_second_does_not_interrupt_the_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated signal within half a second, as from coreutils' `timeout`, does not interrupt the cleanup; a later one
    does.
    """
    now = [5.0]
    monkeypatch.setattr("producer.runtime.signals.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    interrupts = Interrupts()
    with interrupts.raised():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        now[0] += 0.1
        signal.raise_signal(signal.SIGTERM)
        now[0] += 60
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert interrupts.exit_code == 143


@pytest.mark.parametrize(("name", "told"), [("SIGTERM", (143, "terminated")), ("SIGINT", (130, "interrupted"))])
def test_sigint_while_text_is_executed_as_in_dataclasses_ends_the_command_with_its_own_exit_code(
    tmp_path: Path, name: str, told: tuple[int, str]
) -> None:
    """SIGINT while text is executed, as in dataclasses, ends the command with its own exit code."""
    text = f"import os, signal; os.kill(os.getpid(), signal.{name}); never = 1"
    (tmp_path / "interrupted.py").write_text(
        f"import sys, producer.cli as cli\ncli._main = lambda *_, **__: exec({text!r})\nsys.exit(cli.main(['agent']))\n"
    )
    command, paths = [sys.executable, "-m", "interrupted"], os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stderr) == (told[0], f"producer agent: {told[1]}\n")


def test_an_interrupt_while_a_class_is_created_prints_one_line_and_exits_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An interrupt while a class is created prints one line and exits with 130; another RuntimeError is raised."""

    def failing(cause: BaseException) -> None:
        def run(_args: object) -> int:
            raise RuntimeError("Error calling __set_name__ on 'cached_property' instance 'x' in 'Y'") from cause

        monkeypatch.setattr("producer.cli.completion.run", run)

    failing(KeyboardInterrupt())
    assert main(["completion", "bash"]) == 130
    assert capsys.readouterr().err == "producer completion: interrupted\n"
    failing(ValueError())
    with pytest.raises(RuntimeError, match="__set_name__"):
        main(["completion", "bash"])
