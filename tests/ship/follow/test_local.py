"""``--follow --engine local``: following works without Spark, over restarts, kills and rotations."""

import gzip
import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import answer, delay
from producer.ship.errors import InputError
from producer.ship.follow import local
from producer.ship.follow.local import follow_locally
from producer.ship.follow.progress import PROGRESS_FILE, Progress, read_progress, write_progress
from producer.ship.job import ShipJob
from producer.ship.local_engine import LocalEngine
from producer.ship.options import ShipOptions
from producer.ship.report import Shipment, progress_bar
from tests.support.waiting import Call, eventually

from ..conftest import PATIENCE, append, contents, parse_ship, ship_arguments
from ..test_interrupts import Start, start

__all__ = ["start"]

MakeJob = Callable[..., ShipJob]
Run = Callable[..., Shipment]


@pytest.fixture
def run_once(tmp_path: Path, logs: Path, make_job: MakeJob) -> Run:
    """Return a function that ships the new lines since the last run with the same checkpoint."""

    def run(*, multiline_start: str | None = None, **options: object) -> Shipment:
        (tmp_path / "checkpoint").mkdir(exist_ok=True)
        given = {"checkpoint": str(tmp_path / "checkpoint"), "paths": [str(logs)], **options}
        chosen = ShipOptions(once=True, **given)  # type: ignore[arg-type]
        job = make_job(parser="text", multiline_start=multiline_start)
        return follow_locally(LocalEngine(2), job, chosen, console=Console(file=io.StringIO()))

    return run


def test_new_files_appended_lines_and_rotated_files_arrive_once_over_several_runs(
    server: LogHubServer, logs: Path, run_once: Run
) -> None:
    """New files, appended lines and rotated files arrive once over several runs."""
    append(logs / "a.log", "one\ntwo\n")
    assert run_once().failure is None
    append(logs / "a.log", "three\n")
    (logs / "a.log").rename(logs / "a.log.1")
    append(logs / "a.log", "four\nunfinished")
    append(logs / "b.log", "other\n")
    shipment = run_once(settle=3600.0)
    assert (shipment.failure, shipment.figures.lines) == (None, 3)
    assert sorted(contents(server)) == ["four", "one", "other", "three", "two"]
    assert run_once(settle=3600.0).figures.lines == 0


def test_named_file_is_shipped_to_its_end_after_it_was_renamed(server: LogHubServer, logs: Path, run_once: Run) -> None:
    """A named file is shipped to its end after rotation has renamed it."""
    append(logs / "a.log", "one\n")
    assert run_once(paths=[str(logs / "a.log")]).failure is None
    append(logs / "a.log", "two\n")
    (logs / "a.log").rename(logs / "a.log.1")
    append(logs / "a.log", "three\n")
    assert run_once(paths=[str(logs / "a.log")]).failure is None
    append(logs / "a.log.1", "four\n")
    assert run_once(paths=[str(logs / "a.log")]).failure is None
    assert sorted(contents(server)) == ["four", "one", "three", "two"]


def test_a_file_that_is_shorter_than_its_offset_as_after_copytruncate_is_read_from_its_start(
    server: LogHubServer, logs: Path, run_once: Run
) -> None:
    """A file that is shorter than its offset, as after copytruncate, is read from its start."""
    append(logs / "a.log", "one\ntwo\n")
    assert run_once().failure is None
    (logs / "a.log").write_text("new\n")
    assert run_once().failure is None
    assert sorted(contents(server)) == ["new", "one", "two"]


def test_damaged_file_does_not_end_the_following_of_others(server: LogHubServer, logs: Path, run_once: Run) -> None:
    """A damaged file fails its run, but the readable lines of all files are shipped once; when complete, it is read
    again.
    """
    packed = gzip.compress(b"packed\n")
    (logs / "a.gz").write_bytes(packed[:-4])
    os.utime(logs / "a.gz", (1, 1))  # A compressed file is read only after it has not changed for a while.
    append(logs / "b.log", "one\n")
    shipment = run_once()
    assert "a.gz: damaged or incomplete gzip data" in str(shipment.failure)
    assert shipment.failed_attempts == 0
    append(logs / "b.log", "two\n")
    assert run_once().failure is None
    assert sorted(contents(server)) == ["one", "packed", "two"]
    (logs / "a.gz").write_bytes(packed)
    os.utime(logs / "a.gz", (2, 2))
    assert run_once().failure is None
    assert sorted(contents(server)) == ["one", "packed", "packed", "two"]


def test_backlog_is_taken_in_batches_until_nothing_is_left(server: LogHubServer, logs: Path, run_once: Run) -> None:
    """A backlog larger than a batch is shipped in several batches in one run, each with its own checkpoint."""
    for name in "abc":
        append(logs / name, f"line of {name}\n")
    assert run_once(batch_bytes=5).figures.lines == 3
    assert sorted(contents(server)) == ["line of a", "line of b", "line of c"]


def test_once_ends_though_a_file_grows_all_the_time(
    server: LogHubServer, logs: Path, run_once: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--once`` ships the lines of the first scan in as many batches as needed, and ends even if a file grows."""
    for name in "abc":
        append(logs / name, f"line of {name}\n")

    def grow(checkpoint: str, progress: Progress) -> None:
        write_progress(checkpoint, progress)
        if progress.batch < 10:
            append(logs / "a", "later\n")

    monkeypatch.setattr(local, "write_progress", grow)
    assert run_once(batch_bytes=5).figures.lines == 3
    assert sorted(contents(server)) == ["line of a", "line of b", "line of c"]


def test_without_new_lines_the_next_scan_begins_after_the_rest_of_the_interval(
    logs: Path, make_job: MakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without new lines, the next scan begins after the rest of the interval."""
    waits: list[float] = []

    def wait(stop: threading.Event, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            stop.set()

    monkeypatch.setattr(local, "wait", wait)
    options = ShipOptions(paths=[str(logs)], checkpoint=str(tmp_path), interval=500.0)
    with progress_bar(Console(file=io.StringIO()), None) as bar:
        local._Following(LocalEngine(1), make_job(parser="text"), options, threading.Event(), bar).until_end()
    assert len(waits) == 3
    assert all(400 < seconds <= 500 for seconds in waits)


def test_stop_does_not_wait_longer_than_it_may(server: LogHubServer, logs: Path, make_job: MakeJob) -> None:
    """While the server does not respond, a stop abandons the batch after ``stop_timeout``; the next run ships it."""
    append(logs / "a.log", "one\n")
    silence = server.faults.add(delay(PATIENCE), operation="PutLogs")
    checkpoint = logs.parent / "checkpoint"
    checkpoint.mkdir()
    options = ShipOptions(paths=[str(logs)], checkpoint=str(checkpoint), stop_timeout=0.1)

    def stop() -> None:
        eventually(lambda: silence.fired > 0, "the request")
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = Call(stop)
    shipment = follow_locally(LocalEngine(1), make_job(parser="text"), options, console=Console(file=io.StringIO()))
    stopper.result()
    assert (shipment.failure, shipment.figures.lines) == (None, 0)
    assert read_progress(str(checkpoint)).planned is not None


def test_failed_batch_is_shipped_by_the_next_run(
    server: LogHubServer, logs: Path, run_once: Run, tmp_path: Path
) -> None:
    """A refused batch fails the run with the reason, and the next run ships the same batch."""
    append(logs / "a.log", "one\n")
    refusal = server.faults.add(answer(400, "PostBodyInvalid", "no good"))
    failure = run_once().failure
    assert failure is not None
    assert "PostBodyInvalid: no good" in failure
    assert read_progress(str(tmp_path / "checkpoint")).planned is not None
    server.faults.remove(refusal)
    append(logs / "a.log", "two\n")
    assert run_once().failure is None
    assert contents(server) == ["one", "two"]
    assert read_progress(str(tmp_path / "checkpoint")).planned is None


def test_a_file_that_was_deleted_after_its_batch_was_planned_fails_the_run_with_its_name_once(
    logs: Path, run_once: Run, server: LogHubServer
) -> None:
    """A file that was deleted after its batch was planned fails the run with its name, once."""
    append(logs / "a.log", "one\n")
    refusal = server.faults.add(answer(400, "PostBodyInvalid", "no good"))
    run_once()
    server.faults.remove(refusal)
    (logs / "a.log").unlink()
    assert run_once().failure == f"{logs}/a.log: 4 bytes from byte 0 on were deleted before they were shipped"
    assert run_once().failure is None


def test_a_multi_line_log_that_is_still_being_written_waits_for_its_end(
    server: LogHubServer, logs: Path, run_once: Run
) -> None:
    """A multi-line log that is still being written waits for its end."""
    append(logs / "a.log", "1 a\n\tat\n2 b\n")
    assert run_once(multiline_start=r"\d", settle=3600.0).failure is None
    append(logs / "a.log", "\tat b\n3 c\n")
    assert run_once(multiline_start=r"\d", settle=3600.0).failure is None
    assert contents(server) == ["1 a\n\tat", "2 b\n\tat b"]
    os.utime(logs / "a.log", (0, 0))
    assert run_once(multiline_start=r"\d").failure is None
    assert contents(server)[2:] == ["3 c"]


def follow_command(server: LogHubServer, logs: Path, *more: str) -> list[str]:
    checkpoint = logs.parent / "checkpoint"
    arguments = ship_arguments(server, logs, f"--checkpoint={checkpoint}", "--follow", "--interval=0.1")
    return ["-m", "producer", "ship", *arguments, "--engine=local", "--workers=2", *more]


def test_stop_lets_the_batch_end_and_a_kill_repeats_it(start: Start, server: LogHubServer, logs: Path) -> None:
    """A batch that SIGKILL interrupts is shipped again; SIGTERM ends with 0 and an up-to-date checkpoint."""
    append(logs / "a.log", "one\n")
    silence = server.faults.add(delay(PATIENCE), operation="PutLogs", times=1)
    started = start(*follow_command(server, logs))
    eventually(lambda: silence.fired > 0, "the request")
    started.process.kill()
    started.process.wait()
    eventually(lambda: not started.left(), "the end of every process")
    started = start(*follow_command(server, logs))
    eventually(lambda: "one" in contents(server), "the line")
    append(logs / "a.log", "two\n")
    eventually(lambda: "two" in contents(server), "the next line")
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(PATIENCE) == 0, started.process.communicate()
    eventually(lambda: not started.left(), "the end of every process")
    found = contents(server)
    started = start(*follow_command(server, logs, "--once"))
    assert started.process.wait(PATIENCE) == 0
    assert contents(server) == found


def test_stop_of_the_whole_group_lets_the_batch_end(start: Start, server: LogHubServer, logs: Path) -> None:
    """SIGTERM to the process group, as service managers send it, kills no worker with a request in flight."""
    append(logs / "a.log", "one\n")
    slow = server.faults.add(delay(1.0), operation="PutLogs", times=1)
    started = start(*follow_command(server, logs))
    eventually(lambda: slow.fired > 0, "the request")
    code, out, err = started.interrupt(signal.SIGTERM, group=True)
    assert (code, err) == (0, "")
    assert "failed" not in out
    assert contents(server) == ["one"]
    assert not started.left()


def test_checkpoint_of_the_other_engine_is_refused(
    server: LogHubServer, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint of the other engine is refused, as each keeps offsets in its own form."""
    append(logs / "a.log", "one\n")
    command = follow_command(server, logs, "--once")[3:]
    assert cli.run(parse_ship(command)) == 0
    assert (logs.parent / "checkpoint" / PROGRESS_FILE).exists()
    command = [each for each in command if not each.startswith(("--engine", "--workers"))]
    assert cli.run(parse_ship([*command, "--engine=spark"])) == 2
    assert "belongs to engine local, not spark" in " ".join(capsys.readouterr().err.split())


def test_unreadable_progress_is_an_error_and_does_not_ship_all_files_again(
    logs: Path, run_once: Run, tmp_path: Path
) -> None:
    """Unreadable progress is an error, and does not ship all files again."""
    run_once()
    append(logs / "a.log", "one\n")
    run_once()
    file = tmp_path / "checkpoint" / PROGRESS_FILE
    for damaged in ("{", file.read_text().replace('"end": 4', '"end": 0')):
        file.write_text(damaged)
        with pytest.raises(InputError, match=f"the progress of the checkpoint cannot be read: .*{PROGRESS_FILE}"):
            run_once()


def test_checkpoint_that_cannot_be_written_any_more_fails_the_run(
    server: LogHubServer, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint that cannot be written fails the run with exit code 1; the next run ships that batch again."""
    append(logs / "a.log", "one\n")
    written: list[Progress] = []

    def full(checkpoint: str, progress: Progress) -> None:
        written.append(progress)
        if len(written) > 1:
            raise InputError(f"the checkpoint cannot be written: {checkpoint}: No space left on device")
        write_progress(checkpoint, progress)

    monkeypatch.setattr(local, "write_progress", full)
    command = follow_command(server, logs, "--once")[3:]
    assert cli.run(parse_ship(command)) == 1
    assert "the checkpoint cannot be written" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(local, "write_progress", write_progress)
    assert cli.run(parse_ship(command)) == 0
    assert contents(server) == ["one", "one"]
