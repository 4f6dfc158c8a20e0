"""``--follow`` on Spark: new lines are shipped, a restart continues, and a stop is clean."""

import gzip
import io
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxBytes
from rich.console import Console

from producer.server import LogHubServer
from producer.server.faults import answer
from producer.ship.errors import InputError
from producer.ship.figures import Figures
from producer.ship.files.find import LINK_TO_DIRECTORY
from producer.ship.follow import query
from producer.ship.follow.losses import Losses
from producer.ship.follow.query import follow
from producer.ship.follow.source import FilesReader
from producer.ship.job import ShipJob
from producer.ship.options import ShipOptions
from producer.ship.report import Shipment

from ..conftest import LOGSTORE, PATIENCE, PROJECT, append, contents, held, ship_arguments, start_ship, wait_for

MakeJob = Callable[..., ShipJob]
Run = Callable[..., Shipment]


@pytest.fixture
def run_once(spark: SparkSession, tmp_path: Path, logs: Path, make_job: MakeJob) -> Run:
    """Return a function that ships the new lines since the last run with the same checkpoint."""

    def run(**options: object) -> Shipment:
        given = {"checkpoint": str(tmp_path / "checkpoint"), **options}
        chosen = ShipOptions(paths=[str(logs)], once=True, **given)  # type: ignore[arg-type]
        return follow(spark, make_job(parser="text"), chosen, console=Console(file=io.StringIO()))

    return run


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pandas, ``--follow`` is refused before the start, with the extra to install."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas: .*pip install .*follow.*--engine local"):
        follow(cast("Any", None), cast("Any", None), ShipOptions(paths=[], checkpoint="c"), console=Console())


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
    assert shipment.failure is None
    assert sorted(contents(server)) == ["four", "one", "other", "three", "two"]
    assert shipment.figures.lines == 3
    assert run_once(settle=3600.0).figures.lines == 0


def test_bytes_added_to_a_settled_line_arrive_as_a_line_of_their_own(
    server: LogHubServer, logs: Path, run_once: Run
) -> None:
    """Bytes added to a last line that was already shipped become a line of their own."""
    append(logs / "a.log", "a\nb\nunfinished")
    os.utime(logs / "a.log", (0, 0))
    assert run_once().failure is None
    append(logs / "a.log", "more\nc\n")
    assert run_once().failure is None
    assert [(log["content"], log["__file_offset__"]) for log in held(server)] == [
        ("a", "0"),
        ("b", "2"),
        ("unfinished", "4"),
        ("more", "14"),
        ("c", "19"),
    ]


def test_checkpoint_within_a_followed_directory_is_not_shipped(server: LogHubServer, logs: Path, run_once: Run) -> None:
    """Files of a checkpoint within a followed directory are not shipped."""
    append(logs / "a.log", "one\n")
    for _ in range(2):
        assert run_once(checkpoint=str(logs / "checkpoint"), settle=1e-9).failure is None
    assert contents(server) == ["one"]
    assert (logs / "checkpoint" / "metadata").exists()


def test_backlog_is_taken_in_batches_until_nothing_is_left(
    server: LogHubServer, logs: Path, run_once: Run, tmp_path: Path
) -> None:
    """A backlog larger than a micro-batch is shipped in several ones in one run, each committed."""
    for name in "abc":
        append(logs / name, f"line of {name}\n")
    assert run_once(batch_bytes=5).figures.lines == 3
    assert sorted(contents(server)) == ["line of a", "line of b", "line of c"]
    commits = [path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal()]
    assert len(commits) >= 3


def test_failed_batch_is_shipped_by_the_next_run(server: LogHubServer, logs: Path, run_once: Run) -> None:
    """A refused batch is not committed: the run fails with the reason, and the next run ships it."""
    append(logs / "a.log", "one\n")
    refusal = server.faults.add(answer(400, "PostBodyInvalid", "no good"))
    failure = run_once().failure
    assert failure is not None
    assert "PostBodyInvalid: no good" in failure
    server.faults.remove(refusal)
    assert run_once().failure is None
    assert contents(server) == ["one"]


def test_lines_deleted_after_their_batch_was_planned_fail_the_run_with_name_and_size(
    server: LogHubServer, logs: Path, run_once: Run
) -> None:
    """Lines deleted after their batch was planned fail the run with name and size; all other lines are shipped."""
    append(logs / "a.log", "one\n")
    refusal = server.faults.add(answer(400, "PostBodyInvalid"))
    run_once()
    server.faults.remove(refusal)
    (logs / "a.log").unlink()
    append(logs / "b.log", "two\n")
    failure = run_once().failure
    assert failure is not None
    assert f"{logs}/a.log: 4 bytes from byte 0 on were deleted before they were shipped" in failure
    assert contents(server) == ["two"]
    assert run_once().failure is None


def test_a_damaged_file_can_be_excluded(server: LogHubServer, logs: Path, run_once: Run) -> None:
    """A damaged file can be excluded, so that the rest of its batch is shipped from the same checkpoint."""
    (logs / "bad.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    append(logs / "good.log", "one\n")
    failure = run_once(settle=1e-9).failure
    assert failure is not None
    assert f"{logs}/bad.gz: damaged or incomplete gzip data" in failure
    shipment = run_once(settle=1e-9, exclude=["bad.gz"])
    assert shipment.failure is None
    assert contents(server, logs / "good.log") == ["one"]


def test_a_link_to_a_directory_is_logged_once_not_at_each_scan_a_later_one_is_logged_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A link to a directory is logged once, not at each scan; a later one is logged, too."""
    logs, outside = tmp_path / "logs", tmp_path / "outside"
    logs.mkdir()
    outside.mkdir()
    reader = FilesReader(ShipOptions(paths=[str(logs)], checkpoint=str(tmp_path / "checkpoint")), None, 1)
    for name in ("first", "second"):
        (logs / name).symlink_to(outside)
        for _ in range(3):
            assert reader.latestOffset({}, ReadMaxBytes(1000)) == {}
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [f"skipped {logs / name}: {LINK_TO_DIRECTORY}" for name in ("first", "second")]


def test_skipped_binary_and_hidden_files_are_logged_once_with_their_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Skipped binary and hidden files are logged once with their reason.

    Hidden files that appear later, such as temporary files, and deleted files are not logged.
    """
    (tmp_path / ".old").write_text("x")
    (tmp_path / "wtmp").write_bytes(b"\0")
    reader = FilesReader(ShipOptions(paths=[str(tmp_path)], checkpoint=str(tmp_path / "checkpoint")), None, 1)
    for name, content in (("first.log", b""), (".tmp", b"x"), ("btmp", b"\0")):
        (tmp_path / name).write_bytes(content)
        for _ in range(2):
            reader.latestOffset({}, ReadMaxBytes(1000))
    (tmp_path / "wtmp").unlink()
    reader.latestOffset({}, ReadMaxBytes(1000))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    reasons = ((".old", "hidden"), ("wtmp", "binary"), ("btmp", "binary"))
    assert told == [f"skipped {tmp_path / name}: {reason}" for name, reason in reasons]


def test_sigterm_stops_between_batches(server: LogHubServer, logs: Path, tmp_path: Path) -> None:
    """A follower in its own process ships new lines, and ends on SIGTERM with 0 and its table."""
    append(logs / "a.log", "one\n")
    arguments = ship_arguments(server, logs, "--follow", "--checkpoint", tmp_path / "checkpoint", "--interval=0.2")
    with start_ship(*arguments) as follower:
        try:
            wait_for(lambda: contents(server) == ["one"], follower)
            append(logs / "a.log", "two\n")
            wait_for(lambda: sorted(contents(server)) == ["one", "two"], follower)
            follower.send_signal(signal.SIGTERM)
            out, err = follower.communicate(timeout=PATIENCE)
        finally:
            follower.kill()
    assert follower.returncode == 0, err
    assert "files begun" in out
    assert "Traceback" not in err
    assert [log["__file_offset__"] for log in held(server)] == ["0", "4"]
    assert server.count(PROJECT, LOGSTORE) == 2


class Query:
    """A query within a micro-batch that ends after a number of polls."""

    isActive = True

    def __init__(self, looks: float) -> None:
        self.stopped = False
        self.looks = looks

    @property
    def status(self) -> dict[str, bool]:
        self.looks -= 1
        return {"isTriggerActive": self.looks > 0}

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(("looks", "timeout"), [(3, PATIENCE), (math.inf, 0.1)])
def test_stop_waits_for_the_micro_batch_and_no_longer_than_it_may(looks: float, timeout: float) -> None:
    """A stop waits for the end of a micro-batch, but no longer than its timeout."""
    running = Query(looks)
    query._stop(running, timeout)  # type: ignore[arg-type]
    assert running.stopped
    assert running.looks in {0, math.inf}


def test_once_ships_the_lines_of_the_first_scan_in_as_many_micro_batches_as_needed_and_no_later_lines(
    tmp_path: Path,
) -> None:
    """``once`` ships the lines of the first scan in as many micro-batches as needed, and no later lines."""
    for name in "ab":
        append(tmp_path / name, "line\n")
    reader = FilesReader(ShipOptions(paths=[str(tmp_path)], checkpoint="/none"), None, 1)
    reader.prepareForTriggerAvailableNow()
    reached: dict[str, Any] = {}
    ends: list[int] = []
    for _ in range(4):
        reached = reader.latestOffset(reached, ReadMaxBytes(3))
        ends.append(sum(taken["end"] for taken in reached.values()))
        append(tmp_path / "a", "later\n")
    assert ends == [5, 10, 10, 10]


def test_each_loss_is_logged_once_the_last_one_is_the_reason_of_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Each loss is logged once; the last one is the reason of the failure."""
    losses = Losses()
    for lost in (("one",), ("one",), ("one", "two")):
        losses.log(Figures(lost=lost))
    assert [record.getMessage() for record in caplog.records] == ["one", "two"]
    assert losses.last == "two"
