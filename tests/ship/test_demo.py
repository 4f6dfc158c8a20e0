"""``make run`` reports success and failure correctly."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples.ship_demo import demo
from examples.ship_demo.samples import write_access_logs
from examples.ship_demo.verify import differences, digests_of_files, digests_of_logs
from examples.ship_demo.whole import all_logs
from producer.server import LogHubServer
from producer.server.faults import drop_answer
from producer.ship import spark_engine
from producer.ship.files.find import Search
from producer.ship.files.plan import plan
from producer.ship.job import ShipJob
from producer.ship.lines.parsers import make_parser
from producer.spark.logstore import LogstoreClient
from producer.spark.options import Target

from .conftest import LOGSTORE, PROJECT, held, project_of, ship_splits

Tamper = Callable[[list[dict[str, str]]], None]


@pytest.fixture
def on_test_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demonstration use the session of the tests, and leave it running."""
    monkeypatch.setattr(spark_engine, "running_context", lambda **_: contextlib.nullcontext(spark.sparkContext))
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)


def tampered(log: dict[str, str], **fields: str) -> None:
    log.update(fields)


@pytest.mark.usefixtures("on_test_session")
def test_everything_arrived_is_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Made-up logs, plain and compressed, are delivered, with exit code 0."""
    write_access_logs(tmp_path, lines=500)
    assert demo.main(["--input", str(tmp_path)]) == 0
    assert "OK: all 1,000 lines of 2 files arrived, once, unchanged" in capsys.readouterr().out


@pytest.mark.usefixtures("on_test_session")
def test_line_that_came_twice_is_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line stored twice, because the response was lost, is a failure."""

    class Forgetful(LogHubServer):
        def __init__(self) -> None:
            super().__init__()
            self.faults.add(drop_answer(), times=1, operation="PutLogs")

    monkeypatch.setattr(demo, "LogHubServer", Forgetful)
    (tmp_path / "a.log").write_text("one\ntwo\n")
    assert demo.main(["--input", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert f"{tmp_path}/a.log: 2 lines in the file, 4 in the logstore" in shown
    assert "FAILED: 1 difference in 2 lines of 1 file\n" in shown


def test_a_missing_input_is_an_error_not_a_success_without_files(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing INPUT is an error, not a success without files."""
    assert demo.main(["--input", "/no/such/file"]) == 2
    assert "/no/such/file" in capsys.readouterr().out


def test_a_directory_without_files_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory without files is an error."""
    assert demo.main(["--input", str(tmp_path)]) == 2
    assert f"there are no files to ship in {tmp_path}" in capsys.readouterr().out


def test_failed_job_is_a_failure_though_everything_arrived(tmp_path: Path) -> None:
    """A job that reports a failure is a failure, even if all lines are stored."""
    (tmp_path / "a.log").write_text("one\n")
    found = Search([str(tmp_path)]).all()
    console = Console(file=io.StringIO())
    assert demo.verdict(found, digests_of_files(found.files), None, console) == 0
    assert demo.verdict(found, digests_of_files(found.files), "some reason", console) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("one\n", "OK: 1 line of 1 file arrived"), ("one\ntwo\n", "OK: all 2 lines of 1 file arrived")],
)
def test_verdict_counts_in_singular_and_plural(tmp_path: Path, text: str, said: str) -> None:
    """The verdict uses singular and plural: "1 line", "2 lines"."""
    (tmp_path / "a.log").write_text(text)
    found = Search([str(tmp_path)]).all()
    shown = io.StringIO()
    demo.verdict(found, digests_of_files(found.files), None, Console(file=shown))
    assert said in shown.getvalue()


def test_a_machine_without_readable_logs_uses_made_up_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without readable logs uses made-up ones."""
    monkeypatch.setattr(demo, "_newest", lambda _found: demo.Found((), ()))
    found = demo._choose(None, tmp_path, Console(file=io.StringIO()))
    assert [Path(file.path).name for file in found.files] == ["access.log", "access.log.1.gz"]
    assert all(parsed for parsed in map(make_parser("apache"), (tmp_path / "access.log").read_text().splitlines()))


def test_the_newest_files_that_fit_are_used_and_the_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest files that fit are used, and the others are named."""
    for name in "ab":
        (tmp_path / name).write_text("x" * 99 + "\n")
    monkeypatch.setattr(demo, "_MOST_BYTES", 150)
    found = demo._newest(Search([str(tmp_path)]).all())
    assert len(found.files) == 1
    assert [reason for _, reason in found.skipped] == ["too much for a demonstration"]


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda logs: None, id="nothing", marks=[]),
        pytest.param(lambda logs: logs.pop(), id="a line is missing"),
        pytest.param(lambda logs: logs.append(logs[0]), id="a line is there twice"),
        pytest.param(lambda logs: tampered(logs[0], content="ONE"), id="a line is changed"),
        pytest.param(lambda logs: tampered(logs[0], __file_offset__="4"), id="a line is moved"),
        pytest.param(lambda logs: tampered(logs[0], **{"__tag__:__path__": "/other"}), id="a line is in another file"),
        pytest.param(lambda logs: tampered(logs[1], content=logs[0]["content"]), id="one line for another"),
    ],
)
def test_tampering_is_found(
    tmp_path: Path,
    server: LogHubServer,
    make_job: Callable[..., ShipJob],
    tamper: Tamper,
    request: pytest.FixtureRequest,
) -> None:
    """The comparison names the file of any altered record, and finds nothing in unaltered ones."""
    (tmp_path / "a.log").write_text("one\ntwo\nthree\n")
    files = Search([str(tmp_path)]).all().files
    ship_splits(plan(files)[0], make_job(parser="text"))
    logs = held(server)
    tamper(logs)
    found = differences(digests_of_files(files), digests_of_logs(logs))
    assert bool(found) is ("nothing" not in request.node.name)
    assert all(str(tmp_path) in problem or "/other" in problem for problem in found)


def test_everything_is_read_back_through_the_protocol(
    tmp_path: Path, server: LogHubServer, make_job: Callable[..., ShipJob]
) -> None:
    """More batches than one PullLogs returns, from all shards, are read back completely."""
    (tmp_path / "a.log").write_text("".join(f"line {number}\n" for number in range(300)))
    job = make_job(parser="text", producer={"batch_count_threshold": 1})
    ship_splits(plan(Search([str(tmp_path)]).all().files)[0], job)
    assert len(server.log_groups(PROJECT, LOGSTORE)) == 300
    with LogstoreClient(Target(project_of(server), LOGSTORE)) as client:
        logs = sorted(all_logs(client), key=lambda log: int(log["__file_offset__"]))
    assert logs == held(server)
