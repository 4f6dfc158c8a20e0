"""exec: a command's lines, its restart, its standard error, and its end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from producer.agent import AgentConfigError
from producer.agent.config.options import from_flume, read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import Context
from producer.agent.sources import intake
from producer.agent.sources.exec import ExecError, ExecSource
from producer.runtime.clock import Stop
from tests.support.waiting import eventually, passed


class Outlet:
    """Outlet that keeps batches; it has room while ``free`` is set."""

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Event()

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        self.asked.set()
        while not self.free.wait(0.01):
            if stop.is_set():
                return False
        self.batches.append(batch)
        return True

    @property
    def lines(self) -> list[bytes]:
        return [body for batch in list(self.batches) for body in batch.bodies()]


class Running:
    def __init__(self, folder: Path, command: str, **options: Any) -> None:
        self.outlet, self.stop, self.counters = Outlet(), Stop(), Counters()
        chosen = read_options(ExecSource.Options, {"command": command, **options}, "sources.e")
        self._source = ExecSource(chosen, Context("a", "e", folder, self.counters))
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._source.run(self.outlet, self.stop)  # type: ignore[arg-type]
        except ExecError as error:
            self.error = error

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.outlet.free.set()
        self.end()

    def end(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_line_that_is_too_long_is_split_while_the_command_still_writes_it(tmp_path: Path) -> None:
    """A line that is too long is split while the command still writes it."""
    with Running(tmp_path, "printf %5000d 7; sleep 60", shell="/bin/sh -c", max_line_bytes=1024) as run:
        eventually(lambda: sum(map(len, run.outlet.lines)) == 5000)
        assert run.thread.is_alive()


def test_each_line_of_a_command_is_an_event(tmp_path: Path) -> None:
    """All output arrives in order, including an unfinished last line; single lines are batched."""
    with Running(
        tmp_path, f"{sys.executable} -c \"for n in range(50000): print('line', n)\nprint('half', end='')\""
    ) as run:
        run.end()

        assert run.outlet.lines == [b"line %d" % n for n in range(50_000)] + [b"half"]
        assert len(run.outlet.batches) < 2000


@pytest.mark.parametrize(
    ("shell", "command", "said"),
    [
        ("/bin/sh -c", "for i in 1 2 3; do echo $i; done", [b"1", b"2", b"3"]),
        ("/bin/bash -c", "echo a b c | tr ' ' '\\n'", [b"a", b"b", b"c"]),
        ("/bin/sh -c", "echo one; (echo two) | cat; echo `echo three`", [b"one", b"two", b"three"]),
    ],
)
def test_with_shell_loops_pipes_quotes_and_substitutions_work(
    tmp_path: Path, shell: str, command: str, said: list[bytes]
) -> None:
    """With shell, loops, pipes, quotes and substitutions work."""
    with Running(tmp_path, command, shell=shell) as run:
        run.end()

        assert run.outlet.lines == said


def test_a_line_comes_when_it_is_written(tmp_path: Path) -> None:
    """A line arrives when it is written, without waiting for a full batch."""
    with Running(tmp_path, "echo now; sleep 600", shell="/bin/sh -c") as run:
        eventually(lambda: run.outlet.lines == [b"now"])


def test_a_command_is_run_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With restart the command runs again after the throttle; repeated failures are logged once."""
    with Running(tmp_path, "echo again; exit 3", shell="/bin/sh -c", restart=True, restart_throttle=0.01) as run:
        eventually(lambda: len(run.outlet.lines) >= 3)

        assert run.counters.last_error == "'echo again; exit 3' ended with the exit status 3"
    assert caplog.text.count("ended with the exit status 3") == 1


def test_a_command_that_cannot_be_run_raises_an_error_with_the_command_and_the_reason(tmp_path: Path) -> None:
    """A command that cannot be run raises an error with the command and the reason."""
    with Running(tmp_path, "/no/such/program --x") as run:
        run.end()

        assert "'/no/such/program --x' cannot be run" in str(run.error)


def test_standard_error_is_logged_if_wanted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With log_std_err the standard error is logged line by line, and never becomes an event."""
    with Running(tmp_path, "echo out; echo oops >&2", shell="/bin/sh -c", log_std_err=True) as run:
        run.end()

        assert run.outlet.lines == [b"out"]
        (record,) = [each for each in caplog.records if each.getMessage().endswith("oops")]
        assert record.levelno == logging.WARNING


def test_the_last_line_of_standard_error_is_logged_without_a_line_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last line of standard error is logged without a line end, and after standard output was closed."""
    command = "echo out; exec >&-; printf 'first\nout of memory' >&2; exit 3"
    with Running(tmp_path, command, shell="/bin/sh -c", log_std_err=True) as run:
        run.end()
        told = [each.getMessage() for each in caplog.records if "stderr of" in each.getMessage()]
        assert told == [f"stderr of {command!r}: {line}" for line in ("first", "out of memory")]


def test_another_charset_becomes_utf8(tmp_path: Path) -> None:
    """Output in another charset arrives as UTF-8, also if its line ends have two bytes."""
    (tmp_path / "text").write_bytes("grün\nblau\n".encode("utf-16"))
    with Running(tmp_path, f"cat {tmp_path}/text", encoding="UTF-16") as run:
        run.end()

        assert run.outlet.lines == ["grün".encode(), b"blau"]


def test_a_full_channel_holds_the_command_back(tmp_path: Path) -> None:
    """A full channel blocks the command's pipe; nothing is dropped, and the source keeps running."""
    run = Running(tmp_path, "seq 2000000")
    run.outlet.free.clear()
    with run:
        passed(run.outlet.asked)
        assert run.thread.is_alive()
        assert not run.outlet.lines
        run.outlet.free.set()
        run.end()

        assert run.outlet.lines == [b"%d" % n for n in range(1, 2_000_001)]


def test_stopping_the_source_sends_sigterm_to_the_commands_group(tmp_path: Path) -> None:
    """Stopping the source sends SIGTERM to the command's group, and SIGKILL to processes that ignore it."""
    command = "trap '' TERM; sleep 600 & echo $! $$; wait"
    with Running(tmp_path, command, shell="/bin/sh -c") as run:
        eventually(lambda: run.outlet.lines)
        pids = [int(pid) for pid in run.outlet.lines[0].split()]
        assert all(map(_is_alive, pids))
        run.stop.set()
        run.end()

        eventually(lambda: not any(map(_is_alive, pids)))


@pytest.fixture
def agent_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that runs an exec source, and prints its first line."""
    program = (
        "import sys, pathlib\n"
        "from tests.agent.sources.test_exec import Running\n"
        "run = Running(pathlib.Path(sys.argv[1]), 'sleep 600 & echo $! $$; wait', shell='/bin/sh -c')\n"
        "run.thread.start()\n"
        "while not run.outlet.lines: pass\n"
        "print(run.outlet.lines[0].decode(), flush=True)\n"
        "run.thread.join()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        yield process
        process.kill()


def test_the_command_dies_with_a_killed_agent(agent_process: subprocess.Popen[str]) -> None:
    """After kill -9 of the agent, neither the command nor the processes that it started survive."""
    assert agent_process.stdout is not None
    pids = [int(pid) for pid in agent_process.stdout.readline().split()]
    assert all(map(_is_alive, pids))
    os.kill(agent_process.pid, signal.SIGKILL)

    eventually(lambda: not any(map(_is_alive, pids)))


def test_flumes_keys() -> None:
    """Flume's option names and milliseconds are accepted."""
    values = {"command": "tail -F /x", "restartThrottle": "2500", "logStdErr": "true", "batchTimeout": "100"}
    options = read_options(ExecSource.Options, from_flume(ExecSource.Options, values), "sources.e")

    assert (options.command, options.restart_throttle, options.log_std_err) == ("tail -F /x", 2.5, True)


@pytest.mark.parametrize(
    ("values", "said"),
    [({}, "command: is missing"), ({"command": "a 'b"}, "quoted"), ({"command": "a", "encoding": "idna"}, "encoding")],
)
def test_an_invalid_option_is_refused_before_the_start_with_its_name_the_rule_and_the_value(
    values: dict[str, str], said: str
) -> None:
    """An invalid option is refused before the start, with its name, the rule and the value."""
    with pytest.raises(AgentConfigError, match=said):
        read_options(ExecSource.Options, values, "sources.e")


def test_an_interceptor_that_fails_holds_the_command_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an interceptor fails the command waits, and its output is put once the interceptor works."""
    monkeypatch.setattr(intake, "_FIRST_PAUSE", 0.001)
    running = Running(tmp_path, "seq 5")
    put, left = running.outlet.put_until, [3]

    def failing(batch: EventBatch, stop: Stop) -> bool:
        if left[0]:
            left[0] -= 1
            raise ConnectionError("the service that the interceptor asks is away")
        return put(batch, stop)

    monkeypatch.setattr(running.outlet, "put_until", failing)
    with running:
        running.end()
    assert running.outlet.lines == [b"1", b"2", b"3", b"4", b"5"]


def test_lines_of_utf_16_need_no_mark(tmp_path: Path) -> None:
    """UTF-16 without a byte order mark is little-endian; with a mark its byte order is used."""
    for written in ("a\nb\n".encode("utf-16-le"), b"\xfe\xff" + "a\nb\n".encode("utf-16-be")):
        (tmp_path / "out").write_bytes(written)
        with Running(tmp_path, f"cat {tmp_path / 'out'}", encoding="utf-16") as running:
            eventually(lambda running=running: not running.thread.is_alive())
        assert running.outlet.lines == [b"a", b"b"]
