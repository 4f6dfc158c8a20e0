"""A checkpoint has one user at a time."""

import errno
import os
from pathlib import Path

import pytest

from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import Action, ApiRequest, delay
from producer.ship.errors import InputError
from producer.ship.follow.checkpoint_lock import LOCK_FILE, locked_checkpoint
from tests.support.waiting import eventually

from ..conftest import PATIENCE, contents, parse_ship, ship_arguments
from ..test_interrupts import Start, start

__all__ = ["start"]


@pytest.mark.parametrize("how", [["--follow"], ["--follow", "--exactly-once"], ["--exactly-once"]])
def test_second_command_with_the_same_checkpoint_is_refused(
    start: Start, server: LogHubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    """A second command with the same checkpoint is refused, and the message names the process; after its death the next
    starts.
    """
    (tmp_path / "a.log").write_text("one\n")
    arguments = ship_arguments(server, tmp_path / "a.log", f"--checkpoint={tmp_path}/checkpoint", *how)
    arguments += ["--engine=local", "--workers=1"]

    def silent(request: ApiRequest) -> Action | None:
        asks = request.query.get("seqid") in {"1", "2"}  # Before anything is shipped.
        return None if asks else delay(PATIENCE)(request)

    silence = server.faults.add(silent, operation="PutLogs")
    first = start("-m", "producer", "ship", *arguments)
    eventually(lambda: silence.fired > 0, "a request with lines")
    assert cli.run(parse_ship(arguments)) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"the checkpoint {tmp_path}/checkpoint is in use by another command (process {first.process.pid} on " in said
    first.process.kill()
    first.process.wait()
    server.faults.remove(silence)
    last = [*arguments, "--once"] if "--follow" in how else arguments
    assert cli.run(parse_ship(last)) == 0
    assert "one" in contents(server)


def test_a_full_disk_of_the_checkpoint_is_reported_as_such_not_as_an_error_of_the_commands_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk of the checkpoint is reported as such, not as an error of the command's output."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with (
        pytest.raises(InputError, match=r"the checkpoint cannot be written: .*: No space left"),
        locked_checkpoint(str(tmp_path)),
    ):
        pass


def test_after_the_lock_file_is_deleted_another_command_is_still_refused(
    server: LogHubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the lock file is deleted, another command is still refused, and the first one fails with the reason."""
    (tmp_path / "a.log").write_text("one\n")
    checkpoint = tmp_path / "checkpoint"
    arguments = ship_arguments(server, tmp_path / "a.log", f"--checkpoint={checkpoint}", "--follow", "--once")

    def delete(_request: ApiRequest) -> Action | None:
        (checkpoint / LOCK_FILE).unlink(missing_ok=True)
        with pytest.raises(InputError, match="in use by another command"), locked_checkpoint(str(checkpoint)):
            pass
        return None

    server.faults.add(delete, operation="PutLogs")
    assert cli.run(parse_ship([*arguments, "--engine=local", "--workers=1"])) == 1
    assert "was removed or replaced: another command may use the checkpoint" in " ".join(
        capsys.readouterr().err.split()
    )
