"""``--engine local``: the same portions in processes of this machine, without Spark, and no process left."""

import io
import math
import multiprocessing
import os
import pickle
import re
import runpy
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from examples.ship_demo.verify import differences, digests_of_files, digests_of_logs
from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import answer, delay
from producer.ship import local_engine, shipment
from producer.ship.files.find import Found, Search
from producer.ship.files.log_file import LogFile
from producer.ship.files.plan import Split, plan
from producer.ship.job import ShipJob
from producer.ship.local_engine import ATTEMPTS, LocalEngine, LocalRun, _can_fork, _Task
from producer.ship.portions import Portion
from producer.ship.report import ProgressBar, Shipment, outcomes
from producer.ship.shipment import ship_search
from tests.support.waiting import eventually

from .conftest import LOGSTORE, PATIENCE, PROJECT, contents, held, parse_ship, ship_arguments, write_logs
from .test_interrupts import Start, assert_ended, start

__all__ = ["start"]

MakeJob = Callable[..., ShipJob]

# A PySpark that must not be imported.
_NO_SPARK = "raise ImportError('PySpark was imported')"


def run_job(path: Path, job: ShipJob, **options: int) -> Shipment:
    return ship_search(LocalEngine(2), Search([str(path)]), job, console=Console(file=io.StringIO()), **options)


def begin(path: Path, job: ShipJob) -> LocalRun:
    return LocalEngine(1).start([Portion(splits) for splits in plan(Search([str(path)]).all().files)], job)


def test_every_line_of_a_directory_arrives_once_and_unchanged(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Every line of files of every kind, in many portions, is on the server byte for byte."""
    write_logs(tmp_path)
    shipment = run_job(tmp_path, make_job(), partition_bytes=20_000)
    assert shipment.failure is None
    files = Search([str(tmp_path)]).all().files
    assert differences(digests_of_files(files), digests_of_logs(held(server))) == []
    assert (shipment.figures.files, shipment.figures.lines, shipment.figures.records) == (5, 9006, 9006)
    assert shipment.figures.file_bytes == sum(file.size for file in files)


def test_files_are_shipped_before_all_are_found(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first files are shipped before the search has ended."""
    monkeypatch.setattr(shipment, "FIRST_FILES", 64)
    for number in range(300):
        (tmp_path / f"{number:03d}").write_text(f"{number}\n")
    stored: list[int] = []

    class Watched(Search):
        """A search that records how much was stored at each step."""

        def advance(self, files: float = math.inf, seconds: float = math.inf) -> None:
            stored.append(server.count(PROJECT, LOGSTORE))
            super().advance(min(files, self.waiting + 64), seconds)

    done = ship_search(
        LocalEngine(1), Watched([str(tmp_path)]), make_job(parser="text"), console=Console(file=io.StringIO())
    )
    assert (done.failure, done.figures.files, done.figures.lines) == (None, 300, 300)
    assert max(stored) > 0
    assert sorted(map(int, contents(server))) == list(range(300))


def test_search_beside_the_tasks_goes_so_far_and_no_further(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """The search during shipping is limited in files, and stops when all are found."""
    (tmp_path / "a.log").write_text("line\n")
    asked: list[tuple[float, float]] = []

    class Noted(Search):
        """A search that finds nothing more after its first step, and ends at its third one."""

        def advance(self, files: float = math.inf, seconds: float = math.inf) -> None:
            asked.append((files, seconds))
            if len(asked) == 1:
                super().advance(files)
            self.ended = len(asked) >= 3

    server.faults.add(delay(1.0), operation="PutLogs", times=1)
    ship_search(LocalEngine(1), Noted([str(tmp_path)]), make_job(parser="text"), console=Console(file=io.StringIO()))
    whole, beside = (shipment.FIRST_FILES, math.inf), (shipment._MOST_FILES, shipment._POLL_SECONDS / 2)
    assert asked[0] == whole
    assert 1 <= asked.count(beside) <= 2
    assert set(asked) == {whole, beside}


def test_no_interrupt_comes_between_a_workers_start_and_its_first_step(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals are blocked until a new worker ignores them, or they would end it with a trace."""
    held_back: list[set[int]] = []

    class Process:
        pid = None

        def start(self) -> None:
            held_back.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    class Context:
        get_start_method = staticmethod(lambda: "fork")
        Pipe = staticmethod(multiprocessing.Pipe)
        Process = staticmethod(lambda **_: Process())

    monkeypatch.setattr(local_engine, "_context", lambda **_: Context())
    run = LocalRun([], make_job(parser="text"), 1)
    run._start_worker()
    assert held_back[0] >= {signal.SIGINT, signal.SIGTERM}
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {signal.SIGINT, signal.SIGTERM}
    run._workers[0].pipe.close()


def test_the_percentage_is_that_of_the_bytes_found_so_far(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The percentage is that of the bytes found so far, while the search goes on."""
    for name in ("first", "second"):
        (tmp_path / name).write_text("line\n")

    class TwoParts:
        """A search that finds both files, and yields one at a time."""

        found_bytes = 10

        def __init__(self) -> None:
            self._left = list(Search([str(tmp_path)]).all().files)
            self.ended = False

        def advance(self, files: float = math.inf, seconds: float = math.inf) -> None:
            # It ends at the step after all files were taken.
            self.ended = self.ended or (seconds == math.inf and len(self._left) < 2)

        def take(self) -> Found:
            return Found((self._left.pop(),), ())

    search, told = TwoParts(), list[tuple[bool, float]]()
    show = ProgressBar.show

    def watched(self: ProgressBar, *arguments: Any) -> None:
        show(self, *arguments)
        told.append((search.ended, self._progress.tasks[0].percentage))

    monkeypatch.setattr(ProgressBar, "show", watched)
    done = ship_search(LocalEngine(1), search, make_job(parser="text"), console=Console(file=io.StringIO()))
    assert done.failure is None
    assert (False, 50.0) in told
    assert told[-1] == (True, 100.0)


def test_failure_tells_of_all_parts(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failure, files of completed parts are reported as stored, and found but unstarted ones as not sent."""
    monkeypatch.setattr(shipment, "FIRST_FILES", 64)
    monkeypatch.setattr(shipment, "_MOST_FILES", 64)
    for number in range(200):
        (tmp_path / f"{number:03d}").write_text(f"{number}\n")
    refused = answer(400, "PostBodyInvalid", "no good")
    server.faults.add(
        lambda request: refused(request) if server.count(PROJECT, LOGSTORE) >= 64 else None, operation="PutLogs"
    )
    done = ship_search(
        LocalEngine(1), Search([str(tmp_path)]), make_job(parser="text"), console=Console(file=io.StringIO())
    )
    assert done.failure is not None
    assert (done.complete_files, done.complete_lines) == (64, 64)
    told = "\n".join(outcomes(done))
    assert done.unsearched == ("files not yet found at the failure were not sent" in told)
    assert told.startswith("all files together: 64 lines stored")
    assert "64 files stored completely" in told
    # These are the bytes of the files found until the failure.
    assert f"{sum(file.unsent_bytes for file in done.files)} bytes not sent" in told
    assert sum(file.unsent_bytes > 0 for file in done.files) >= 64


def test_a_completed_portion_reports_only_a_number_per_file_to_the_driver(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A completed portion reports only a number per file to the driver."""
    for number in range(100):
        (tmp_path / f"{number:03d}").write_text("one\n" * number + "two\n")
    run = begin(tmp_path, make_job(parser="text"))
    eventually(lambda: run.wait(0.1), "end", PATIENCE)
    assert len(pickle.dumps(run.account)) < 1_000
    portion = Portion(plan(Search([str(tmp_path)]).all().files)[0])
    assert [file.stored for file in run.account.files([portion], ())] == list(range(1, 101))
    assert server.count(PROJECT, LOGSTORE) == 5_050


def test_portion_that_failed_is_tried_again(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """A refusal that does not blame the records fails the attempt, and the next one delivers everything."""
    (tmp_path / "a.log").write_text("one\ntwo\nthree\n")
    server.faults.add(answer(404, "LogStoreNotExist"), times=1, operation="PutLogs")
    shipment = run_job(tmp_path, make_job(parser="text"))
    assert (shipment.failure, shipment.failed_attempts) == (None, 1)
    assert contents(server) == ["one", "two", "three"]


def test_refused_records_fail_the_job_at_the_first_attempt(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Refused records fail the job at the first attempt, with a one-line reason that has the offset and no secret."""
    (tmp_path / "a.log").write_text("one\n")
    server.faults.add(answer(400, "PostBodyInvalid", "no good"), operation="PutLogs")
    shipment = run_job(tmp_path, make_job())
    assert shipment.failed_attempts == 1
    assert shipment.failure is not None
    assert f"a line of {tmp_path}/a.log from byte 0 on: PostBodyInvalid: no good" in shipment.failure
    assert f"{PROJECT}/{LOGSTORE} at {server.url}" in shipment.failure
    assert server.access_key_secret not in shipment.failure


def test_after_a_permanent_failure_no_portion_is_started_or_repeated_but_the_running_ones_are_awaited(
    server: LogHubServer, make_job: MakeJob
) -> None:
    """After a permanent failure no portion is started or repeated, but the running ones are awaited."""
    run = LocalRun([], make_job(parser="text"), 2, keep=True)
    first, second = _Task(0, b"", attempts=ATTEMPTS), _Task(1, b"", attempts=1)
    run._tasks.append(_Task(2, b""))
    run._died(first, "refused")
    run._died(second, "died")
    assert (run.failure, list(run._tasks), run.failed_attempts) == ("refused", [], 2)


def test_workers_that_cannot_be_forked_are_spawned(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are spawned where they cannot be forked (macOS, hdfs://), and do not run the command again."""
    here = LogFile("/a.log", 1, None)
    there = LogFile("hdfs://node/a.log", 1, None, address="hdfs://node/a.log")
    assert [_can_fork([Portion((Split(file, 0, 1),))]) for file in (here, there)] == [True, False]
    assert runpy.run_module("producer", run_name="__mp_main__")["__name__"] == "__mp_main__"
    (tmp_path / "a.log").write_text("one\ntwo\n")
    monkeypatch.setattr(local_engine, "_can_fork", lambda _: False)
    shipment = run_job(tmp_path, make_job(parser="text"))
    assert (shipment.failure, shipment.failed_attempts) == (None, 0)
    assert contents(server) == ["one", "two"]


def test_worker_that_is_killed_loses_no_line(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """The portion of a killed worker is shipped by another one."""
    (tmp_path / "a.log").write_text("one\ntwo\n")
    silence = server.faults.add(delay(PATIENCE), operation="PutLogs", times=1)
    run = begin(tmp_path / "a.log", make_job(parser="text"))
    try:
        eventually(lambda: silence.fired > 0, "the request")
        os.kill(run._workers[0].process.pid or 0, signal.SIGKILL)
        eventually(lambda: run.wait(0.1), "the end")
    finally:
        run.cancel()
    assert (run.failure, run.failed_attempts, run.figures.records) == (None, 1, 2)
    assert contents(server)[-1] == "two"


def test_worker_that_dies_each_time_fails_the_job(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """A worker that dies at each attempt fails the job, with the exit code in the reason."""
    (tmp_path / "a.log").write_text("one\n")
    silence = server.faults.add(delay(PATIENCE), operation="PutLogs")
    run = begin(tmp_path / "a.log", make_job(parser="text"))
    try:
        for attempt in range(ATTEMPTS):
            eventually(lambda attempt=attempt: silence.fired > attempt, "the request")  # type: ignore[misc]
            os.kill(run._workers[0].process.pid or 0, signal.SIGKILL)
            eventually(lambda attempt=attempt: run.wait(0.1) or run.failed_attempts > attempt, "its end")  # type: ignore[misc]
        assert run.wait(0)
    finally:
        run.cancel()
    assert run.failure == "a worker process died with exit code -9 while it shipped a portion"
    assert run.doubtful == {0}  # Its lines must not be reported as not stored.


def command(server: LogHubServer, folder: Path) -> list[str]:
    (folder / "a.log").write_text("one\n")
    return ["-m", "producer", "ship", *ship_arguments(server, folder / "a.log"), "--engine=local", "--workers=2"]


def test_neither_spark_nor_java_is_needed(start: Start, tmp_path: Path, server: LogHubServer) -> None:
    """The local engine works without PySpark and Java."""
    (tmp_path / "pyspark.py").write_text(_NO_SPARK)
    started = start(*command(server, tmp_path), PYTHONPATH=str(tmp_path), JAVA_HOME="/nowhere")
    out, err = started.process.communicate(timeout=PATIENCE)
    assert started.process.returncode == 0, err
    assert "records acknowledged" in out
    assert contents(server) == ["one"]


@pytest.mark.parametrize(("number", "code", "group"), [(signal.SIGINT, 130, True), (signal.SIGTERM, 143, False)])
def test_signal_ends_every_process(
    number: int, code: int, group: bool, start: Start, tmp_path: Path, server: LogHubServer
) -> None:
    """Ctrl-C and SIGTERM while the server does not respond: one line, the right exit code, and no worker left."""
    silence = server.faults.add(delay(PATIENCE), operation="PutLogs")
    started = start(*command(server, tmp_path))
    eventually(lambda: silence.fired > 0, "the request")
    assert_ended(started, number, code, group=group)


def test_worker_ends_with_a_command_that_was_killed(start: Start, tmp_path: Path, server: LogHubServer) -> None:
    """Workers end with the command, even after SIGKILL."""
    silence = server.faults.add(delay(PATIENCE), operation="PutLogs")
    started = start(*command(server, tmp_path))
    eventually(lambda: silence.fired > 0, "the request")
    started.process.kill()
    started.process.wait()
    eventually(lambda: not started.left(), "the end of every process")


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--engine=local", "--master=local[2]"], "--master is an option of --engine spark, but the engine is local"),
        (["--engine=spark", "--workers=2"], "--workers is an option of --engine local, but the engine is spark"),
    ],
)
def test_option_of_the_other_engine_is_refused(
    server: LogHubServer, capsys: pytest.CaptureFixture[str], extra: list[str], said: str
) -> None:
    """An option of the other engine is refused with exit code 2."""
    assert cli.run(parse_ship([*ship_arguments(server, "/no/such/file"), *extra])) == 2
    assert said in capsys.readouterr().err


_TRACES = "".join(f"{number} failed\n\tat one\n\n\tat two {'x' * (number % 50)}\n" for number in range(500))


@pytest.mark.parametrize("file_offset", [True, False])
def test_stack_traces_stay_whole_across_portions(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, file_offset: bool
) -> None:
    """Each stack trace is one record, wherever the file is divided; lines before the first are kept."""
    (tmp_path / "a.log").write_bytes(b"head\n" + _TRACES.encode() + b"501 \xff\n\tat\n")
    job = make_job(parser="text", multiline_start=r"\d", file_offset=file_offset)
    shipment = run_job(tmp_path, job, partition_bytes=1000)
    assert (shipment.failure, shipment.figures.records, shipment.figures.lines) == (None, 502, 502)
    found = {dict(log.contents)["content"] for log in server.logs(PROJECT, LOGSTORE)}
    assert found == {"head", *re.split(r"\n(?=\d+ )", _TRACES.rstrip("\n")), "501 \\xff\n\tat"}


def test_files_are_shipped_to_the_first_of_several_endpoints_that_answers(tmp_path: Path, server: LogHubServer) -> None:
    """With a first endpoint that is away, the check before the job passes, and each line arrives."""
    (tmp_path / "a.log").write_text("one\ntwo\n")
    arguments = ship_arguments(server, tmp_path, "--engine=local")
    several = [each.replace("--endpoint=", "--endpoint=http://127.0.0.1:1,") for each in arguments]
    assert cli.run(parse_ship(several)) == 0
    assert sorted(contents(server)) == ["one", "two"]
