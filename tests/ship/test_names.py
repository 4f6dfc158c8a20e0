r"""File names that are not text are sent and shown as ``\xNN``, and no step hangs on them."""

import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from examples.ship_demo.verify import differences, digests_of_files, digests_of_logs
from producer.server import LogHubServer
from producer.ship.command import print_skipped
from producer.ship.errors import FileChangedError
from producer.ship.files.find import Search
from producer.ship.files.log_file import LogFile
from producer.ship.files.plan import Split, plan
from producer.ship.follow.query import follow
from producer.ship.job import ShipJob
from producer.ship.options import ShipOptions
from producer.ship.portions import Portion
from producer.ship.report import Shipment
from producer.ship.shipment import ship_search
from producer.ship.spark_engine import SparkEngine
from producer.spark.errors import SparkJobError
from producer.text.printable import readable
from tests.support.waiting import Call

from .conftest import contents, held, ship_splits

#: Time after which a job counts as hung, seconds; a new JVM takes longer.
JOB_SECONDS = 110.0

MakeJob = Callable[..., ShipJob]


def write(folder: Path, name: bytes, data: bytes) -> str:
    """Write a file with a name of bytes. Return its path in Python."""
    path = os.path.join(os.fsencode(folder), name)
    with open(path, "wb") as file:
        file.write(data)
    return os.fsdecode(path)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain.log", "plain.log"), ("é.log", "é.log"), ("a\udcffé", "a\\xffé"), ("\ud800", "\\ud800")],
)
def test_bytes_of_a_name_that_are_not_utf8_are_shown_by_number(text: str, shown: str) -> None:
    """Bytes of a name that are not UTF-8 are shown as numbers, and the result can be sent."""
    assert readable(text) == shown
    assert shown.encode()


def test_every_error_with_such_a_path_is_text_that_can_be_sent() -> None:
    """Every error with such a path is text that can be sent."""
    assert str(SparkJobError("/logs/a\udcff.log: gone")) == "/logs/a\\xff.log: gone"


def test_a_file_with_such_a_name_is_shipped_next_to_others_and_the_comparison_finds_it_by_its_name(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A file with such a name is shipped next to others, and the comparison finds it by its name."""
    write(tmp_path, b"bad\xff.log", b"one\ntwo\n" * 100)
    write(tmp_path, b"old\xe4.log.gz", gzip.compress(b"three\n"))
    write(tmp_path, b"good.log", b"four\n")
    found = Search([str(tmp_path)]).all()
    console = Console(file=io.StringIO())
    run = Call(
        lambda: ship_search(
            SparkEngine(spark.sparkContext), Search([str(tmp_path)]), make_job(), console=console, partition_bytes=100
        )
    )
    shipment: Shipment = run.result(JOB_SECONDS)
    assert shipment.failure is None
    assert shipment.figures.lines == 202
    assert contents(server, f"{tmp_path}/old\\xe4.log.gz") == ["three"]
    assert differences(digests_of_files(found.files), digests_of_logs(held(server))) == []


def test_an_error_of_a_worker_with_such_a_path_ends_the_job_instead_of_leaving_the_driver_waiting(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """An error of a worker with such a path ends the job, instead of leaving the driver waiting."""
    write(tmp_path, b"bad\xff.gz", gzip.compress(b"one\n" * 10_000)[:-20])
    console = Console(file=io.StringIO())
    search = Search([str(tmp_path)])
    run = Call(lambda: ship_search(SparkEngine(spark.sparkContext), search, make_job(), console=console))
    failure = run.result(JOB_SECONDS).failure
    assert failure is not None
    assert f"{tmp_path}/bad\\xff.gz: damaged or incomplete gzip data" in failure


def test_the_error_for_a_truncated_file_with_such_a_name_shows_it_as_text(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """The error for a truncated file with such a name shows it as text."""
    path = write(tmp_path, b"bad\xff.log", b"one\n")
    file = Search([path]).all().files[0]
    os.truncate(path, 2)
    with pytest.raises(FileChangedError, match=r"bad\\xff\.log: has 2 bytes, but had 4"):
        ship_splits(plan([file])[0], make_job(parser="text"))


def test_the_checkpoint_keeps_the_bytes_of_such_a_name_and_the_file_is_continued(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """The checkpoint keeps the bytes of such a name, and the file is continued."""
    logs = tmp_path / "logs"
    logs.mkdir()
    options = ShipOptions(paths=[str(logs)], once=True, checkpoint=str(tmp_path / "checkpoint"))
    path = write(logs, b"bad\xff.log", b"one\n")
    for line in (b"two\n", b""):
        shipment = follow(spark, make_job(parser="text"), options, console=Console(file=io.StringIO()))
        assert shipment.failure is None
        with open(path, "ab") as file:
            file.write(line)
    assert contents(server, f"{logs}/bad\\xff.log") == ["one", "two"]


def test_a_portion_as_a_column_keeps_the_bytes_of_the_name() -> None:
    """A serialised portion keeps the bytes of such a name, and any large number."""
    portion = Portion((Split(LogFile("/logs/a\udcff.log", 7, None, 2**63, 3), 4, 7),), ("lost",))
    packed = portion.packed()
    assert isinstance(packed, bytes)
    assert pickle.loads(packed) == portion


def test_a_skipped_file_with_such_a_name_is_printed_on_a_utf_8_terminal() -> None:
    """A skipped file with such a name is printed on a UTF-8 terminal."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict")
    print_skipped([("/logs/a\udcff.bin", "binary")], Console(file=terminal, width=200))
    terminal.flush()
    assert terminal.buffer.getvalue() == b"skipped /logs/a\\xff.bin: binary\n"  # type: ignore[attr-defined]
