"""``producer send`` sends or reports each line, and delivers or reports each log."""

import io
import os
import time

import pytest

from producer.cli import main, send
from producer.cli.profiles import Settings
from producer.server import LogHubServer
from producer.server.faults import answer, delay
from tests.support.waiting import allowed

from .test_logs import Run, hub, run, server, stored
from .test_output import Terminal

__all__ = ["hub", "run", "server"]  # fixtures


def test_bytes_that_are_not_text_arrive_as_backslash_escapes(
    run: Run, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are not text arrive as backslash escapes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\nnext\n"), encoding="ascii"))
    assert main(["send"]) == 0
    assert stored(server) == [{"content": "caf\\xe9"}, {"content": "next"}]


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("a,b,a\n1,2,3\n", 2, "producer send: the first line names a field twice: a, b, a\n"),
        ("a,b\n\n1,2\n\n3,4\n", 0, "2 delivered\n"),
        ('a,b\n"x\ny",2\n3\n', 1, "line 4: 1 values for 2 fields\n1 delivered, 1 not sent\n"),
        ("", 0, "0 delivered\n"),
    ],
)
def test_csv_with_a_repeated_field_name_is_refused_errors_have_the_lines_number(
    run: Run, text: str, code: int, told: str
) -> None:
    """CSV with a repeated field name is refused; errors have the line's number; empty lines are skipped."""
    assert run("send", "--format", "csv", stdin=text) == (code, "", told)


def test_many_errors_are_reported_in_part_always_with_their_number(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """Many errors are reported in part, always with their number."""
    code, _, err = run("send", "--format", "json", stdin="no\n" * 100 + '{"a": 1}\n')
    assert (code, err.count("\nline ") + 1, err.splitlines()[-1]) == (1, 5, "1 delivered, 100 not sent")
    tally = send._Tally()
    tally.failed.update({f"reason {n}": n for n in range(1, 9)})
    assert tally.outcome() == 1
    commonest = [f"{n} failed: reason {n}" for n in range(8, 3, -1)]
    assert capsys.readouterr().err.splitlines() == ["0 delivered, 36 not delivered", *commonest]


def test_a_log_that_is_too_large_is_reported_with_its_line_the_others_are_sent(run: Run, server: LogHubServer) -> None:
    """A log that is too large is reported with its line, the others are sent, and the exit code is 1."""
    code, _, err = run("send", stdin=f"first\n{'x' * 12_000_000}\nlast\n")
    assert (code, [log["content"] for log in stored(server)]) == (1, ["first", "last"])
    assert err.startswith("line 2: ")
    assert err.endswith("2 delivered, 1 not sent\n")
    half = "x" * 6_000_000
    assert run("send", "--format", "csv", stdin=f"a,b\n1,2\n{half},{half}\n")[2].startswith("line 3: ")


def test_a_busy_server_is_retried_until_timeout(run: Run, server: LogHubServer) -> None:
    """A busy server is retried until ``--timeout``."""
    server.faults.add(answer(503, "ServerBusy"), operation="PutLogs", times=4)
    assert run("send", "--timeout", "50", "--source", "s-1", "patient")[0] == 0
    assert {log.source for log in server.logs("cli", os.environ["LOGHUB_LOGSTORE"])} == {"s-1"}
    server.faults.add(answer(503, "ServerBusy"), operation="PutLogs")
    code, _, err = run("send", "--timeout", "0.5", "hurried")
    assert (code, err.splitlines()[0]) == (1, "0 delivered, 1 not delivered")


def test_silent_server_is_waited_for_no_longer_than_a_busy_one(run: Run, server: LogHubServer) -> None:
    """``--timeout`` also limits a single attempt."""
    server.faults.add(delay(30), operation="PutLogs")
    began = time.monotonic()
    code, _, err = run("send", "--timeout", "0.5", "unheard")
    assert (code, err.splitlines()[-1].partition(": ")[0]) == (1, "1 failed")
    assert time.monotonic() - began < allowed(15)


def test_send_waits_for_memory_without_a_limit_only_timeout_fails_logs(server: LogHubServer) -> None:
    """`send` waits for memory without a limit; only ``--timeout`` fails logs."""
    config = send._producer(Settings(project="cli", logstore="l", **server.connection), 7).config
    assert (config.max_block_ms, config.delivery_timeout_ms, config.http.attempt_timeout_ms) == (-1, 7000, 7000)
    assert config.retries > 1000


def test_send_from_a_terminal_prints_how_to_end_without_an_input_it_exits_with_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`send` from a terminal prints how to end; without an input it exits with an error."""
    typed = Terminal("typed\n")
    monkeypatch.setattr("sys.stdin", typed)
    assert send._standard_input(newline="\n") is typed
    assert capsys.readouterr().err == "reading the terminal: one log a line, end with Ctrl-D\n"
    monkeypatch.setattr("sys.stdin", None)
    target = ["--endpoint=http://127.0.0.1:9", "-pp-1", "-ll-1", "--access-key-id=i", "--access-key-secret=s"]
    assert main(["send", *target]) == 2
    assert capsys.readouterr().err == "producer send: there is no standard input: give LINE\n"


def test_of_several_endpoints_the_first_that_answers_is_used(
    run: Run, server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``LOGHUB_ENDPOINT`` takes several endpoints, separated by commas; ``check`` names the one that is away."""
    monkeypatch.setenv("LOGHUB_ENDPOINT", f"http://127.0.0.1:1, {server.endpoint}")
    code, out, err = run("send", "one")
    assert (code, out) == (0, "")
    assert err.endswith("1 delivered\n")
    assert stored(server) == [{"content": "one"}]
    code, out, err = run("check")
    assert code == 1
    assert "http://127.0.0.1:1: cannot be reached" in out + err
