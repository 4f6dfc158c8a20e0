"""``--exactly-once``: whatever process is killed, and whenever, the server stores each line once."""

import errno
import gzip
import io
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxBytes
from rich.console import Console

from producer.cli import main
from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import ApiRequest, Fault, Refuse, answer, delay, drop_answer
from producer.ship import plan_file as plan_files
from producer.ship.exact_delivery import range_key
from producer.ship.files.find import Search
from producer.ship.files.log_file import LogFile
from producer.ship.files.plan import Split, plan
from producer.ship.follow.source import FilesReader
from producer.ship.job import ShipJob
from producer.ship.lines import chunks
from producer.ship.lines.record import content_bytes
from producer.ship.options import ShipOptions
from producer.ship.plan_file import ENDED_FILE, PLAN_FILE, PlanFile
from producer.ship.portions import Portion
from producer.ship.sending import PortionSender
from producer.ship.shipment import ship_plan
from producer.ship.spark_engine import SparkEngine
from producer.spark.executor import leased_producer
from tests.spark.cluster.processes import kill_session
from tests.support.waiting import eventually

from .conftest import LOGSTORE, PATIENCE, PROJECT, held, parse_ship, ship_arguments
from .test_interrupts import Start, Started, start

__all__ = ["start"]

_SOAK = bool(os.environ.get("PRODUCER_SOAK"))
#: Kills per case; ``make soak`` makes twenty of each, half of them on Spark.
KILLS = 10 if _SOAK else 1
#: Kills on Spark, each of which takes the start of a JVM; with more, executors and queries are killed, too.
SPARK_KILLS = 10 if _SOAK else 2

MakeJob = Callable[..., ShipJob]

QUIET = Console(file=io.StringIO())


def write_lines(path: Path, first: int, count: int) -> list[str]:
    lines = [f"{number} {'x' * (number % 97)}" for number in range(first, first + count)]
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return lines


def options(server: LogHubServer, path: Path, *more: str) -> list[str]:
    checkpoint = path.parent / "checkpoint"
    return [*ship_arguments(server, path, f"--checkpoint={checkpoint}"), "--exactly-once", "--engine=local", *more]


def run(server: LogHubServer, path: Path, *more: str) -> int:
    return cli.run(parse_ship(options(server, path, *more)))


def stored(server: LogHubServer) -> Counter[str]:
    return Counter(dict(log.contents)["content"] for log in server.logs(PROJECT, LOGSTORE))


def kill(started: Started, chance: random.Random) -> None:
    """Kill the command, one of its workers, or both, with SIGKILL."""
    left = [process.pid for process in started.left()]
    victims = chance.choice([[started.process.pid], left, left[-1:]])
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def of_lines(fault: Fault) -> Fault:
    """Limit a fault to requests with lines, without the checks of the command."""
    return lambda request: fault(request) if int(request.query.get("seqid", "0")) > 2 else None


def refusing_after(count: int) -> Callable[[ApiRequest], Refuse | None]:
    """Return a fault that accepts a number of requests, and refuses the others."""
    passed: list[ApiRequest] = []

    def refuse(request: ApiRequest) -> Refuse | None:
        passed.append(request)
        return Refuse(status=404, code="LogStoreNotExist", message="gone") if len(passed) > count else None

    return refuse


def wait_for_lines(started: Started, server: LogHubServer, goal: int, patience: float = PATIENCE) -> None:
    """Wait until a command has stored a number of lines, or has ended."""
    come = lambda: started.process.poll() is not None or server.count(PROJECT, LOGSTORE) >= goal  # noqa: E731
    eventually(come, "lines", patience)


def run_until_killed(started: Started, server: LogHubServer, goal: int, chance: random.Random) -> None:
    """Let a command store a number of lines, and kill it."""
    wait_for_lines(started, server, goal)
    kill(started, chance)
    started.process.kill()
    started.process.wait()
    eventually(lambda: not started.left(), "the end of every process")


@pytest.mark.parametrize("kind", ["batch", "follow"])
def test_kills_store_nothing_twice_and_lose_nothing(start: Start, server: LogHubServer, logs: Path, kind: str) -> None:
    """Kills of the command or its workers with lost responses lose no line, and store none twice."""
    chance = random.Random(7)
    expected = write_lines(logs / "a.log", 0, 3000) + write_lines(logs / "b.log", 10_000, 1000)
    more = ["--workers=2", "--partition-bytes=40000"] + (["--follow", "--interval=0.1"] if kind == "follow" else [])
    command = ["-m", "producer", "ship", *options(server, logs, *more)]
    server.faults.add(drop_answer(), operation="PutLogs", probability=0.2, seed=7)
    for turn in range(KILLS):
        goal = server.count(PROJECT, LOGSTORE) + chance.randrange(1, 4500 // KILLS)
        started = start(*command)
        if kind == "follow":
            expected += write_lines(logs / "a.log", 20_000 + 1000 * turn, 500)
        run_until_killed(started, server, goal, chance)
    last = start(*command, *(["--once", "--settle=0.001"] if kind == "follow" else []))
    assert last.process.wait(PATIENCE) == 0, last.process.communicate()
    assert stored(server) == Counter(expected)


def test_worker_that_is_killed_stores_nothing_twice(start: Start, server: LogHubServer, logs: Path) -> None:
    """The portion of a killed worker is sent again, and the command reports the lines stored before."""
    expected = write_lines(logs / "a.log", 0, 3000)
    silence = server.faults.add(of_lines(drop_answer()), operation="PutLogs", times=4)
    started = start("-m", "producer", "ship", *options(server, logs, "--workers=1"))
    eventually(lambda: silence.fired > 0, "a request")
    kill_worker = [process.pid for process in started.left() if process.pid != started.process.pid]
    os.kill(kill_worker[-1], signal.SIGKILL)
    out, err = started.process.communicate(timeout=PATIENCE)
    assert started.process.returncode == 0, err
    assert "of these, stored by an earlier attempt" in out
    assert stored(server) == Counter(expected)


def test_a_truncated_and_rewritten_file_has_the_same_offsets_but_its_lines_are_stored(
    server: LogHubServer, logs: Path
) -> None:
    """A truncated and rewritten file has the same offsets, but its lines are stored."""
    for line in ("one", "two", "six"):
        (logs / "a.log").write_text(f"{line}\n")
        assert run(server, logs, "--follow", "--once", "--settle=0.001") == 0
    assert stored(server) == Counter(["one", "two", "six"])


def test_job_that_has_ended_ships_nothing_more(server: LogHubServer, logs: Path) -> None:
    """A completed checkpoint ships nothing more, even if files have grown or gone."""
    write_lines(logs / "a.log", 0, 100)
    assert run(server, logs) == 0
    write_lines(logs / "a.log", 100, 100)
    (logs / "b.log").write_text("new\n")
    assert run(server, logs) == 0
    assert server.count(PROJECT, LOGSTORE) == 100
    assert {PLAN_FILE, ENDED_FILE} <= {file.name for file in (logs.parent / "checkpoint").iterdir()}


def test_a_failed_job_continues_stored_lines_are_not_stored_again(server: LogHubServer, logs: Path) -> None:
    """A failed job continues: stored lines are not stored again, and the others are stored by the next start."""
    expected = write_lines(logs / "a.log", 0, 3000)
    refusal = server.faults.add(of_lines(refusing_after(2)), operation="PutLogs")
    assert run(server, logs, "--partition-bytes=30000") == 1
    assert 0 < server.count(PROJECT, LOGSTORE) < 3000
    server.faults.remove(refusal)
    assert run(server, logs, "--partition-bytes=30000") == 0
    assert stored(server) == Counter(expected)


@pytest.mark.parametrize("parser", [["--parser=text"], ["--parser=json"], ["--multiline-start=1"]])
def test_every_kind_of_line_is_stored_once(
    server: LogHubServer, logs: Path, monkeypatch: pytest.MonkeyPatch, parser: list[str]
) -> None:
    """Long lines, invalid bytes, empty lines and compressed files are stored once over two attempts."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4096)
    lines = [f'{{"n":{number}}}'.encode() for number in range(2000)]
    lines[700:700] = [b"y" * 3000, b"", b"\xff\xfe", b"", b"z" * 2048]
    (logs / "a.log").write_bytes(b"\r\n".join(lines))
    (logs / "b.log.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    more = [*parser, "--max-line-bytes=1024", "--partition-bytes=7000", "--workers=1"]
    server.faults.add(of_lines(answer(404, "LogStoreNotExist")), operation="PutLogs", probability=0.2, seed=3, times=3)
    server.faults.add(drop_answer(), operation="PutLogs", probability=0.2, seed=4)
    assert run(server, logs, *more) == 0
    (logs.parent / "checkpoint" / ENDED_FILE).unlink()
    count = server.count(PROJECT, LOGSTORE)
    assert run(server, logs, *more) == 0
    assert server.count(PROJECT, LOGSTORE) == count
    places = Counter(
        (log.tags["__path__"], fields["__file_offset__"], fields.get("line_part"))
        for log in server.logs(PROJECT, LOGSTORE)
        for fields in [dict(log.contents)]
    )
    assert set(places.values()) == {1}
    if parser != ["--multiline-start=1"]:
        assert Counter(contents_joined(server)) == Counter(lines * 2)


def contents_joined(server: LogHubServer) -> list[bytes]:
    """Return the lines on the server, with long ones joined."""
    joined: dict[tuple[str, str], bytes] = {}
    for fields in held(server):
        place = fields["__tag__:__path__"], fields["__file_offset__"]
        joined[place] = joined.get(place, b"") + content_bytes(fields)
    return list(joined.values())


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (["--parser=text"], ["--parser=json"], "parser text, not json"),
        (["--partition-bytes=1000"], ["--partition-bytes=2000"], "partition_bytes 1000, not 2000"),
        ([], ["--follow", "--once"], "follow False, not True"),
    ],
)
def test_a_start_with_options_that_change_the_chunks_is_refused_with_the_change_and_exit_code_2(
    server: LogHubServer,
    logs: Path,
    capsys: pytest.CaptureFixture[str],
    first: list[str],
    then: list[str],
    said: str,
) -> None:
    """A start with options that change the chunks is refused with the change, and exit code 2."""
    write_lines(logs / "a.log", 0, 3)
    assert run(server, logs, *first) == 0
    assert run(server, logs, *then) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_ranges_of_different_jobs_and_places_have_keys_of_their_own() -> None:
    """Ranges of different jobs and offsets have different keys, or lines would count as stored."""
    file = LogFile("/a.log", 10, None)
    ranges = [
        (run, Split(each, start, 10)) for run in "ab" for each in (file, replace(file, path="/b")) for start in (0, 5)
    ]
    assert len({range_key(*each).key for each in ranges}) == len(ranges)
    assert range_key("a", Split(file, 0, 10)) == range_key("a", Split(replace(file, size=99), 0, 7))


def test_half_a_number_of_a_portion_is_none(tmp_path: Path) -> None:
    """A partly written number of a portion is ignored, and the next one is read correctly."""
    with PlanFile(str(tmp_path)) as planned:
        planned.end([7, 12])
    file = tmp_path / ENDED_FILE
    file.write_text(file.read_text()[:-2])
    with PlanFile(str(tmp_path)) as planned:
        assert planned.ended() == {7}
        planned.end([3])
    with PlanFile(str(tmp_path)) as planned:
        assert planned.ended() == {3, 7}


def test_checkpoint_on_a_full_disk_fails_the_job_in_words(
    server: LogHubServer, logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk of the checkpoint fails the job with exit code 1; the same command stores the rest later."""
    expected = write_lines(logs / "a.log", 0, 100)

    class Full(io.FileIO):
        def write(self, _: object, /) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(plan_files, "open", lambda path, mode, **_: Full(path, mode), raising=False)
    assert run(server, logs) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"the checkpoint cannot be written: {logs.parent}/checkpoint/{ENDED_FILE}: No space left" in said
    monkeypatch.undo()
    assert run(server, logs) == 0
    assert stored(server) == Counter(expected)


def test_spark_stores_each_line_once(
    spark: SparkSession, server: LogHubServer, logs: Path, make_job: Callable[..., ShipJob]
) -> None:
    """Failed tasks, and a job that is run again, store nothing twice."""
    job = make_job(parser="auto", exactly_once=True)
    expected = write_lines(logs / "a.log", 0, 2000)
    server.faults.add(of_lines(answer(404, "LogStoreNotExist")), operation="PutLogs", probability=0.3, seed=1, times=2)
    server.faults.add(drop_answer(), operation="PutLogs", probability=0.2, seed=2)
    with PlanFile(str(logs.parent)) as plan_file:
        ranges = plan(Search([str(logs)]).all().files, partition_bytes=20_000)
        portions = [Portion(splits, run="job", number=number) for number, splits in enumerate(ranges)]
        for _ in range(2):
            assert ship_plan(SparkEngine(spark.sparkContext), plan_file, portions, job, console=QUIET).failure is None
            assert plan_file.ended() == set(range(len(portions)))
            (logs.parent / ENDED_FILE).write_text("")  # As if the completion had not been recorded.
    assert stored(server) == Counter(expected)


#: The process of a Spark job to kill, and how to recognise it; the driver takes all others with it.
_VICTIMS = {"worker": "pyspark.daemon", "executor": "CoarseGrainedExecutorBackend"}


def kill_of_spark(started: Started, what: str) -> None:
    """Kill a Python worker, an executor, or the driver with its JVM, with SIGKILL."""
    processes = started.left()
    if what == "driver":
        kill_session(started.process.pid)
        started.process.wait()
        return
    named = [each for each in processes if _VICTIMS[what] in each.command]
    # A worker is a child of the process that forks them.
    parents = {each.pid for each in named} if what == "worker" else {each.parent for each in named}
    for victim in [each for each in named if each.parent in parents][:1]:
        os.kill(victim.pid, signal.SIGKILL)


@pytest.mark.timeout(300 if SPARK_KILLS == 2 else 1800)
@pytest.mark.parametrize("kind", ["batch", "follow"] if SPARK_KILLS > 2 else ["batch"])
def test_kills_on_spark_store_nothing_twice(
    start: Start, request: pytest.FixtureRequest, server: LogHubServer, logs: Path, make_job: MakeJob, kind: str
) -> None:
    """A worker, an executor or the driver is killed while responses are lost; the restart stores the rest."""
    few = SPARK_KILLS == 2
    kinds, master = (("worker", "driver"), "local[2,4]") if few else ((*_VICTIMS, "driver"), "local-cluster[2,1,1024]")
    expected = write_lines(logs / "a.log", 0, 4000)
    follow = ["--follow", "--interval=0.1"] if kind == "follow" else []
    command = [
        "-m",
        "producer",
        "ship",
        *options(server, logs, "--partition-bytes=10000", f"--master={master}", *follow),
    ]
    command[command.index("--engine=local")] = "--engine=spark"
    server.faults.add(of_lines(drop_answer()), operation="PutLogs", probability=0.2, seed=7)
    slow = server.faults.add(of_lines(delay(0.05)), operation="PutLogs")
    patience = PATIENCE if few else 5 * PATIENCE  # A cluster takes longer to start, and to replace an executor.
    started, kills = start(*command), Counter[str]()
    for turn in range(SPARK_KILLS):
        if follow:
            expected += write_lines(logs / "a.log", 10_000 * (turn + 1), 1500)
        wait_for_lines(started, server, server.count(PROJECT, LOGSTORE) + 300, patience)
        kills[kinds[turn % len(kinds)]] += started.process.poll() is None
        kill_of_spark(started, kinds[turn % len(kinds)])
        if started.process.poll() is not None and turn < SPARK_KILLS - 1:
            started = start(*command)
    print(f"{kind}: {dict(kills)}")
    started.clean()
    server.faults.remove(slow)
    if few:  # In the existing session, which saves a JVM.
        with PlanFile(str(logs.parent / "checkpoint")) as plan_file:
            job, engine = (
                make_job(parser="auto", exactly_once=True),
                SparkEngine(request.getfixturevalue("spark").sparkContext),
            )
            assert ship_plan(engine, plan_file, plan_file.read() or [], job, console=QUIET).failure is None
    else:
        last = start(*command, *(["--once", "--settle=0.001"] if follow else []))
        out, err = last.process.communicate(timeout=patience)
        assert last.process.returncode == 0, f"{out}\n{err}"
    assert stored(server) == Counter(expected)
    assert set(kills) == set(kinds)


def test_batch_of_a_query_is_cut_the_same_when_it_is_planned_again(
    server: LogHubServer, logs: Path, make_job: Callable[..., ShipJob]
) -> None:
    """A batch planned again has the same chunks, even with more cores, and each batch has its own name."""
    expected = write_lines(logs / "a.log", 0, 2000)
    job = make_job(parser="auto", exactly_once=True)
    options = ShipOptions(paths=[str(logs)], checkpoint="/none", partition_bytes=20_000, exactly_once="query")
    readers = [FilesReader(options, None, cores) for cores in (2, 7)]
    end = json.loads(json.dumps(readers[0].latestOffset({}, ReadMaxBytes(1 << 30))))
    assert readers[0].latestOffset(end, ReadMaxBytes(1 << 30)) == end
    for reader in readers:
        for portion in portions_between(reader, {}, end):
            with leased_producer(job.project, config=job.config) as producer:
                PortionSender(producer, job).ship(portion)
        assert stored(server) == Counter(expected)
    # The file is deleted, and returns with the same inode and lines.
    gone = {"#": end["#"] + 1}
    again = readers[0].latestOffset(gone, ReadMaxBytes(1 << 30))
    assert {**again, "#": 0} == {**end, "#": 0}
    runs = {portion.run for pair in (({}, end), (gone, again)) for portion in portions_between(readers[0], *pair)}
    assert len(runs) == 2


def portions_between(reader: FilesReader, start: dict[str, Any], end: dict[str, Any]) -> list[Portion]:
    return [Portion.unpacked(partition.portion) for partition in reader.partitions(start, end)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [[], ["--follow"]], ids=["batch", "follow"])
def test_service_that_uses_up_the_numbers_of_refused_requests_is_refused(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A server that uses up the numbers of refused requests is refused before anything is sent."""
    log = tmp_path / "a.log"
    write_lines(log, 0, 10)
    with LogHubServer(refused_takes_number=True) as server:
        assert main(["ship", *options(server, log, *more)]) == 2
        assert server.count(PROJECT, LOGSTORE) == 0
    assert "--exactly-once" in (said := " ".join(capsys.readouterr().err.split()))
    assert "uses up the sequence numbers" in said
