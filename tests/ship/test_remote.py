"""Remote files with the whole command and both engines, and refusals before the start."""

import io
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from producer.cli import main
from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import drop_answer
from producer.ship.files.find import Search
from producer.ship.job import ShipJob
from producer.ship.plan_file import PLAN_FILE
from producer.ship.shipment import ship_search
from producer.ship.spark_engine import SparkEngine
from tests.support.remote_servers import answering, web_server
from tests.support.waiting import eventually

from .conftest import LOGSTORE, PATIENCE, PROJECT, contents, parse_ship, ship_arguments
from .test_interrupts import Start, start

__all__ = ["start"]

LINES = [f"{number} {'x' * (number % 97)}" for number in range(3000)]
SECRET = "hunter2-hunter2"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "a.log").write_text("".join(f"{line}\n" for line in LINES))
    (folder / "b.csv").write_text("one,two\n1,2\n")
    with web_server(folder) as url:
        yield url


def run(server: LogHubServer, *arguments: str) -> int:
    return cli.run(parse_ship([*ship_arguments(server, *arguments), "--engine=local", "--workers=2"]))


def test_file_of_a_web_server_is_shipped(server: LogHubServer, web: str) -> None:
    """A file of a web server is shipped in ranges, each line once; its tag is the address without secrets."""
    address = web.replace("http://", f"http://user:{SECRET}@")
    assert run(server, f"{address}/a.log", "--partition-bytes=20000", "--parser=text") == 0
    assert contents(server, f"{web}/a.log") == LINES
    assert not any(SECRET in str(log) for log in server.logs(PROJECT, LOGSTORE))


def test_columns_are_named_by_the_first_line_of_a_remote_file(server: LogHubServer, web: str) -> None:
    """The first line of a remote file names the columns."""
    assert run(server, f"{web}/b.csv", "--parser=delimited") == 0
    (log,) = server.logs(PROJECT, LOGSTORE)
    assert {"one": "1", "two": "2"}.items() <= dict(log.contents).items()


def test_spark_reads_remote_files(
    spark: SparkSession, server: LogHubServer, web: str, make_job: Callable[..., ShipJob]
) -> None:
    """A Spark task gets the address and version of a remote file, and opens it itself."""
    search = Search([f"{web}/a.log"])
    console = Console(file=io.StringIO())
    shipment = ship_search(
        SparkEngine(spark.sparkContext), search, make_job(parser="text"), console=console, partition_bytes=50_000
    )
    assert shipment.failure is None
    assert contents(server) == LINES


def test_remote_file_is_stored_once_whatever_is_killed(
    start: Start, server: LogHubServer, web: str, tmp_path: Path
) -> None:
    """With ``--exactly-once``, a remote file is stored once despite kills, as the plan has its version."""
    more = ["--exactly-once", f"--checkpoint={tmp_path}/ck", "--engine=local", "--workers=2", "--partition-bytes=20000"]
    command = ["-m", "producer", "ship", *ship_arguments(server, f"{web}/a.log", *more)]
    server.faults.add(drop_answer(), operation="PutLogs", probability=0.3, seed=7)
    started = start(*command)
    eventually(lambda: server.count(PROJECT, LOGSTORE) > 500 or started.process.poll() is not None, "lines")
    os.killpg(started.process.pid, signal.SIGKILL)
    started.process.wait()
    assert json.loads((tmp_path / "ck" / PLAN_FILE).read_text())["portions"][0]["splits"][0][0][5] == f"{web}/a.log"
    last = start(*command)
    assert last.process.wait(PATIENCE) == 0, last.process.communicate()
    assert Counter(contents(server)) == Counter(LINES)


def test_a_file_that_changed_between_two_starts_is_reported_and_nothing_of_the_new_one_is_stored(
    server: LogHubServer, web: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that changed between two starts is reported, and nothing of the new one is stored."""
    arguments = [f"{web}/a.log", "--exactly-once", f"--checkpoint={tmp_path}/ck", "--parser=text"]
    assert run(server, *arguments) == 0
    (tmp_path / "ck" / "loghub-producer-ended.txt").unlink()
    (tmp_path / "web" / "a.log").write_text("other\n")
    assert run(server, *arguments) == 1
    assert "was changed since the job was planned" in " ".join(capsys.readouterr().err.split())
    assert contents(server) == LINES


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        ("s3://bucket/logs", ["--follow", "--checkpoint=CK"], "--follow works only for files of a file system"),
        (f"https://u:{SECRET}@host/a", ["--exactly-once", "--checkpoint=CK"], "would store the secret of this address"),
        ("ftp://host/a.log", [], "the scheme ftp:// is unknown; use a path, file:// or one of http://"),
        ("/a.log", ["--follow", "--checkpoint=s3://bucket/ck"], "must be a local directory"),
    ],
)
def test_impossible_requests_are_refused_before_the_start_with_exit_code_2_without_showing_a_secret(
    server: LogHubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, more: list[str], said: str
) -> None:
    """Impossible requests are refused before the start with exit code 2, without showing a secret."""
    arguments = [each.replace("CK", str(tmp_path / "ck")) for each in more]
    assert main(["ship", *ship_arguments(server, path, *arguments), "--engine=local"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown
    assert SECRET not in shown
    assert list(tmp_path.iterdir()) == []


def test_file_without_a_version_is_not_stored_exactly_once(
    server: LogHubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file without a version is refused with ``--exactly-once``, as it cannot be recognised after a restart."""
    with answering(200, {"Content-Length": "5"}, b"line\n") as url:
        assert run(server, f"{url}/a.log") == 0
        assert run(server, f"{url}/a.log", "--exactly-once", f"--checkpoint={tmp_path}/ck") == 2
    assert "sends neither an ETag nor a modification time" in " ".join(capsys.readouterr().err.split())
