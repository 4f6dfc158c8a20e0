"""``--timeout`` limits a request with all its attempts."""

import time

import pytest

from producer.cli import loghub, main
from producer.server import LogHubServer
from producer.server.faults import answer
from tests.sinks.http import hostile_server as hostile
from tests.support.waiting import allowed

from .test_logs import Run, hub, run, server

__all__ = ["hub", "run", "server"]  # fixtures

#: The time of a command besides its timeout on a busy machine, seconds.
_BESIDE = 4.0
_TOLD = "within 0.5 s, the most that a request may take (--timeout)"


@pytest.mark.parametrize("behave", [hostile.hang, hostile.drip_body_of_unknown_length])
@pytest.mark.parametrize(
    "command",
    [
        "search",
        "count",
        "sql x",
        "context a b",
        "tail",
        "tail -f",
        "pull",
        "projects",
        "logstores",
        "create project p-1",
    ],
)
def test_a_server_that_is_silent_or_whose_answer_never_ends_fails_the_command_after_timeout(
    command: str, behave: hostile.Behaviour, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that is silent, or whose answer never ends, fails the command after ``--timeout``."""
    name, *arguments = command.split()
    with hostile.serve(behave) as port:
        target = [f"--endpoint=http://127.0.0.1:{port}", "--access-key-id=i", "--access-key-secret=s"]
        if name != "projects":
            target.append("--project=p-1")
        if name not in ("projects", "logstores"):
            target.append("--logstore=l-1")
        began = time.monotonic()
        code = main([name, *arguments, *target, "--timeout", "0.5"])
        seconds = time.monotonic() - began
    assert (code, seconds < allowed(0.5 + _BESIDE)) == (1, True)
    assert _TOLD in capsys.readouterr().err


def test_attempts_share_the_timeout(run: Run, server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All attempts share ``--timeout``, and the error has the last answer."""
    monkeypatch.setattr(loghub, "_RETRIES", 1_000_000)
    server.faults.add(answer(503, "ServerBusy"), operation="ListProject")
    began = time.monotonic()
    code, _, err = run("projects", "--timeout", "4")
    assert (code, time.monotonic() - began < allowed(4 + _BESIDE)) == (1, True)
    assert "status 503, ServerBusy" in err
    assert "attempts" in err
