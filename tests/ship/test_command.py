"""``producer ship`` with real Spark jobs and a real server, and its output."""

import contextlib
import gzip
import io
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from rich.filesize import decimal

from examples.ship_demo.verify import differences, digests_of_files, digests_of_logs
from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import Refuse, answer, delay
from producer.ship import spark_engine
from producer.ship.errors import InputError
from producer.ship.files.find import Search
from producer.ship.job import ShipJob
from producer.ship.report import Shipment
from producer.ship.shipment import ship_search
from producer.ship.spark_engine import SparkEngine, SparkRun
from tests.support.waiting import allowed

from .conftest import (
    LOGSTORE,
    PATIENCE,
    PROJECT,
    contents,
    held,
    parse_ship,
    ship_arguments,
    start_ship,
    wait_for,
    write_logs,
)

MakeJob = Callable[..., ShipJob]


def run_job(spark: SparkSession, path: Path, job: ShipJob, **options: int) -> Shipment:
    console = Console(file=io.StringIO())
    return ship_search(SparkEngine(spark.sparkContext), Search([str(path)]), job, console=console, **options)


@pytest.fixture
def on_test_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the command use the session of the tests, and leave it running."""
    monkeypatch.setattr(spark_engine, "running_context", lambda **_: contextlib.nullcontext(spark.sparkContext))
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)


@pytest.mark.usefixtures("on_test_session")
def test_files_are_shipped_without_sql(tmp_path: Path, server: LogHubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shipping once needs no session, whose start takes two seconds."""
    monkeypatch.setattr(SparkEngine, "session", property(lambda _: pytest.fail("a session was started")))
    (tmp_path / "a.log").write_text("a\n")
    assert cli.run(parse_ship(ship_arguments(server, tmp_path / "a.log"))) == 0
    assert contents(server) == ["a"]


def test_every_line_of_a_directory_arrives_once_and_unchanged(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Every line of files of every kind, in many partitions, is on the server byte for byte."""
    write_logs(tmp_path)
    shipment = run_job(spark, tmp_path, make_job(), partition_bytes=20_000)
    assert shipment.failure is None
    files = Search([str(tmp_path)]).all().files
    assert differences(digests_of_files(files), digests_of_logs(held(server))) == []
    assert (shipment.figures.files, shipment.figures.lines) == (5, 9006)
    assert shipment.figures.records == 9006
    assert shipment.figures.file_bytes == sum(file.size for file in files)


def test_a_refusal_that_does_not_blame_the_records_fails_the_attempt(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A refusal that does not blame the records fails the attempt, and the next one delivers everything."""
    (tmp_path / "a.log").write_text("one\ntwo\nthree\n")
    server.faults.add(answer(404, "LogStoreNotExist"), times=1, operation="PutLogs")
    shipment = run_job(spark, tmp_path, make_job(parser="text"))
    assert shipment.failure is None
    assert shipment.failed_attempts == 1
    assert contents(server) == ["one", "two", "three"]


def test_refused_records_fail_the_job_at_the_first_attempt(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Refused records fail the job at the first attempt, with a reason of one line without a trace or secret."""
    (tmp_path / "a.log").write_text("one\n")
    server.faults.add(answer(400, "PostBodyInvalid", "no good"), operation="PutLogs")
    shipment = run_job(spark, tmp_path, make_job())
    assert shipment.failed_attempts == 1
    assert shipment.failure is not None
    assert f"a line of {tmp_path}/a.log from byte 0 on" in shipment.failure
    assert f"{PROJECT}/{LOGSTORE} at {server.url}" in shipment.failure
    assert "PostBodyInvalid: no good" in shipment.failure
    assert "\n" not in shipment.failure
    assert server.access_key_secret not in shipment.failure


@pytest.mark.usefixtures("spark")
def test_attempts_of_an_earlier_run_are_not_counted_for_the_next_even_at_the_same_memory_address(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts of an earlier run are not counted for the next, even at the same memory address."""
    monkeypatch.setattr(spark_engine, "id", lambda _: 7, raising=False)
    runs = [SparkRun(MagicMock(), [], make_job()) for _ in range(2)]
    assert all(run.wait(PATIENCE) for run in runs)
    assert runs[0]._group != runs[1]._group


def test_copies_left_by_a_repeated_task_have_the_same_file_and_offset(
    spark: SparkSession, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Copies left by a repeated task have the same file and offset, so that a reader can recognise them."""
    (tmp_path / "a.log").write_text("".join(f"line {number}\n" for number in range(1000)))
    puts = iter(range(10_000))

    def refuse_the_last_batch_once(request: object) -> Refuse | None:
        return Refuse(status=404, code="LogStoreNotExist") if next(puts) == 9 else None

    server.faults.add(refuse_the_last_batch_once, operation="PutLogs")
    shipment = run_job(spark, tmp_path, make_job(parser="text", producer={"batch_count_threshold": 100}))
    assert (shipment.failure, shipment.failed_attempts) == (None, 1)
    logs = held(server)
    unique = {(log["__tag__:__path__"], log["__file_offset__"]): log["content"] for log in logs}
    assert len(logs) > 1000
    assert sorted(unique.values()) == sorted(f"line {number}" for number in range(1000))


@pytest.mark.usefixtures("on_test_session")
def test_command_ships_and_reports(tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 0 and a table of the results."""
    (tmp_path / "a.log").write_text("INFO one\nWARN two\nodd\n")
    arguments = ship_arguments(server, tmp_path, "--parser=regex", r"--pattern=(?P<level>[A-Z]+) (?P<message>.*)")
    assert cli.run(parse_ship([*arguments, "--topic=web", "--source=host-1"])) == 0
    assert [log.get("level") for log in held(server)] == ["INFO", "WARN", None]
    (group,) = server.log_groups(PROJECT, LOGSTORE)
    assert (group.topic, group.source) == ("web", "host-1")
    table = {
        row.split("│")[1].strip(): row.split("│")[2].strip()
        for row in capsys.readouterr().out.splitlines()
        if "│" in row
    }
    assert re.fullmatch(r"[\d,]+ lines/s, [\d,.]+ MB/s \([\d.]+ s\)", table.pop("rate"))
    assert table.pop("waited for memory").endswith(" s")
    assert table == {
        "files": "1",
        "lines": "3",
        "bytes": "19",
        "records acknowledged": "3",
        "batches": "1",
        "attempts": "1",
        "retries": "0",
        "failures": "0",
        "in no known format (sent as text)": "1",
    }


@pytest.mark.usefixtures("on_test_session")
def test_command_fails_when_a_record_was_not_acknowledged(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an acknowledgement the exit code is 1, the reason is on stderr, and the table shows the failure."""
    (tmp_path / "a.log").write_text("one\n")
    server.faults.add(answer(404, "LogStoreNotExist", "no such logstore"), operation="PutLogs")
    assert cli.run(parse_ship(ship_arguments(server, tmp_path))) == 1
    shown = capsys.readouterr()
    assert "LogStoreNotExist" in shown.err
    assert "the job failed" in shown.out
    assert server.access_key_secret not in shown.out + shown.err


@pytest.mark.usefixtures("on_test_session")
def test_skipped_binary_files_are_named_and_a_directory_without_logs_does_not_fail_the_command(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Skipped binary files of a directory are named; a directory without logs does not fail the command."""
    (tmp_path / "wtmp").write_bytes(b"\0")
    assert cli.run(parse_ship(ship_arguments(server, tmp_path))) == 0
    shown = capsys.readouterr().out.replace("\n", "")
    assert f"skipped {tmp_path}/wtmp: binary" in shown
    assert "there are no files to ship in" in shown


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--parser=regex"], "--parser regex needs --pattern"),
        (["--pattern=(?P<a>.*)"], "--pattern is an option of --parser regex, but the parser is auto"),
        (["--delimiter=;"], "--delimiter needs --parser delimited, and the parser is auto"),
        (["--encoding=utf-17"], "--encoding 'utf-17': Python has no such text encoding"),
        (["--encoding=undefined"], "--encoding 'undefined': Python has no such text encoding"),
        (["--encoding=idna"], "--encoding 'idna': Python has no such text encoding"),
        (["--topic=\udcff"], "--topic: '\\udcff' is not valid Unicode"),
        (
            ["--encoding=utf-16", "--follow", "--checkpoint=c"],
            "--encoding does not work with --follow or --exactly-once",
        ),
        (["--parser=delimited", "--delimiter=;;"], "must be one ASCII character"),
        (["--parser=delimited", f"--columns={'x' * 129}"], "--columns: a name has more than 128 bytes"),
        (["--multiline-start=("], "--multiline-start '(' is not a regular expression"),
        (["--multiline-start=x", "--parser=delimited"], "--multiline-start with --parser delimited needs --columns"),
        (["--follow"], "--follow needs --checkpoint DIR"),
        (["--once"], "--once needs --follow"),
        (["--checkpoint=/tmp/x"], "--checkpoint needs --follow or --exactly-once"),
        (["--exactly-once"], "--exactly-once needs --checkpoint DIR"),
        (["--producer-option=linger=200"], "linger: unknown option; it is called linger_ms here"),
        (["--producer-option=linger_ms"], "must be NAME=VALUE"),
        (["--producer-option=linger_ms=0"], "linger_ms: must be a whole number of milliseconds, at least 1, got '0'"),
        (["--logstore=a/b c"], "--logstore must be lower-case letters"),
        (["--endpoint=ftp://x"], "endpoint: must be a URL"),
        ([], "/no/such/file: cannot be read"),
    ],
)
def test_invalid_use_is_refused_before_spark_starts_with_exit_code_2_and_the_remedy(
    server: LogHubServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    extra: list[str],
    said: str,
) -> None:
    """Invalid use is refused before Spark starts, with exit code 2 and the remedy."""
    monkeypatch.setattr(spark_engine, "running_context", lambda **_: pytest.fail("Spark was started"))
    assert cli.run(parse_ship([*ship_arguments(server, "/no/such/file"), *extra])) == 2
    assert said in capsys.readouterr().err


def test_empty_path_is_not_this_directory(server: LogHubServer, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty path, such as an unset shell variable, is refused."""
    assert cli.run(parse_ship(ship_arguments(server, ""))) == 2
    assert "a PATH is empty" in capsys.readouterr().err


def test_producer_ship_with_closed_standard_input_ends_at_once(
    server: LogHubServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``producer ship - <&-`` ends at once, and does not read another file with its descriptor."""
    monkeypatch.setattr("sys.stdin", None)
    assert cli.run(parse_ship(ship_arguments(server, "-"))) == 2
    assert "there is no standard input" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["LOGHUB_ACCESS_KEY_ID", "LOGHUB_ACCESS_KEY_SECRET"])
def test_the_error_for_missing_credentials_names_the_variable_to_set(missing: str) -> None:
    """The error for missing credentials names the variable to set."""
    environ = {"LOGHUB_ACCESS_KEY_ID": "id", "LOGHUB_ACCESS_KEY_SECRET": "secret"}
    del environ[missing]
    args = parse_ship(["x", "--endpoint=http://localhost:1", "--project=p", "--logstore=l"])
    with pytest.raises(InputError, match=missing):
        cli.job_of(args, environ)


def test_lines_are_signed_by_the_source_that_credentials_names(
    server: LogHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--credentials profile:NAME`` ships with the key of that profile, which each worker reads."""
    for name in ("ID", "SECRET"):
        monkeypatch.delenv(f"LOGHUB_ACCESS_KEY_{name}", raising=False)
    (tmp_path / "a.log").write_text("one\n")
    key = f"access_key_id = {server.access_key_id}\naccess_key_secret = {server.access_key_secret}"
    (tmp_path / "profiles").write_text(f"[ship]\ntype = access_key\n{key}\n")
    monkeypatch.setenv("ALIBABA_CLOUD_CREDENTIALS_FILE", str(tmp_path / "profiles"))
    monkeypatch.setenv("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true")
    where = [f"--endpoint={server.endpoint}", "--project=p", "--logstore=by-name", "--credentials=profile:ship"]
    assert cli.run(parse_ship([str(tmp_path / "a.log"), *where, "--engine=local"])) == 0
    assert server.count("p", "by-name") == 1


def test_credentials_come_from_the_environment() -> None:
    """Keys and a token from the environment are used, and shown by no repr."""
    environ = {
        "LOGHUB_ACCESS_KEY_ID": "the-id",
        "LOGHUB_ACCESS_KEY_SECRET": "the-secret",
        "LOGHUB_SECURITY_TOKEN": "the-token",
    }
    job = cli.job_of(parse_ship(["x", "--endpoint=http://localhost:1", "--project=p", "--logstore=l"]), environ)
    credentials = job.project.credentials.get_credentials()
    assert (credentials.access_key_id, credentials.access_key_secret) == ("the-id", "the-secret")
    assert credentials.security_token == "the-token"
    assert "the-secret" not in repr(job)
    assert "the-token" not in repr(job)


@pytest.mark.parametrize("argument", ["--max-line-bytes=10", "--max-line-bytes=2000000", "--partition-bytes=0"])
def test_number_out_of_range_is_refused(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number out of range is refused with the option, the range and the value."""
    with pytest.raises(SystemExit):
        parse_ship(["x", "--endpoint=http://localhost:1", "--project=p", "--logstore=l", argument])
    name, _, value = argument.partition("=")
    said = capsys.readouterr().err
    assert name in said
    assert value in said.partition(", got ")[2]


def test_a_run_without_new_lines_says_so_next_to_a_table_of_zeros(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without new lines says so, next to a table of zeros."""
    (tmp_path / "a.log").write_text("one\n")
    checkpoint = tmp_path / "checkpoint"
    arguments = ship_arguments(
        server, tmp_path / "a.log", "--engine=local", "--exactly-once", "--checkpoint", checkpoint
    )
    for said in (False, True):
        assert cli.run(parse_ship(arguments)) == 0
        out = capsys.readouterr().out
        assert (f"nothing new: according to the checkpoint {checkpoint}, everything was shipped before" in out) == said


def test_a_run_without_a_checkpoint_says_that_the_next_one_sends_all_again(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without a checkpoint says that the next one sends all lines again, and how to avoid it."""
    (tmp_path / "a.log").write_text("one\n")
    arguments = ship_arguments(server, tmp_path / "a.log", "--engine=local")
    for more, said in ([], True), (["--follow", "--once", f"--checkpoint={tmp_path / 'c'}"], False):
        assert cli.run(parse_ship([*arguments, *more])) == 0
        out = capsys.readouterr().out
        assert ("same command sends all of this again; use --follow --once --checkpoint DIR" in out) == said
    assert cli.run(parse_ship([*arguments, "--encoding=latin-1"])) == 0
    assert "again; use --exclude to leave files out" in capsys.readouterr().out  # --follow refuses --encoding
    server.faults.add(answer(404, "LogStoreNotExist"), operation="PutLogs")
    assert cli.run(parse_ship(arguments)) == 1
    assert "sends all of this again" not in capsys.readouterr().out


def test_an_empty_file_is_reported_as_having_no_line(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty file is reported as having no line."""
    (tmp_path / "a.log").write_text("")
    assert cli.run(parse_ship(ship_arguments(server, tmp_path / "a.log", "--engine=local"))) == 0
    out = capsys.readouterr().out
    assert "nothing was sent: the files have no lines" in out
    assert "sends all of this again" not in out


@pytest.mark.usefixtures("on_test_session")
@pytest.mark.parametrize(
    "mode",
    [
        ["--engine=local"],
        ["--engine=spark"],
        ["--engine=local", "--exactly-once"],
        ["--engine=local", "--follow", "--once"],
        ["--dry-run"],
    ],
    ids=" ".join,
)
def test_unreadable_files_set_the_exit_code_in_every_mode_unless_an_option_allows_them(
    mode: list[str], tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unreadable files set the exit code in every mode, unless an option allows them; all other files are shipped."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text("line\n")
    for number in range(11):
        (logs / f"{number}.log").symlink_to(f"{number}.log")
    more = [f"--checkpoint={tmp_path / 'c'}", "--settle=0.001"] if len(mode) > 1 else []
    arguments = ship_arguments(server, logs, str(tmp_path / "none.log"), *mode, *more)
    for _ in range(2):
        assert cli.run(parse_ship(arguments)) == 1
        shown = capsys.readouterr()
        assert "none.log: cannot be read: No such file" in shown.out + shown.err
        for number in range(11):
            assert f"{logs / str(number)}.log: cannot be read: Too many levels" in shown.out + shown.err
    assert cli.run(parse_ship([*arguments, "--allow-unread"])) == 0
    assert set(contents(server)) == (set() if mode == ["--dry-run"] else {"line"})


def test_a_run_that_ends_by_itself_fails_if_a_followed_path_does_not_exist(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ends by itself fails if a followed path does not exist."""
    arguments = ["--engine=local", "--follow", "--once", f"--checkpoint={tmp_path / 'c'}"]
    assert cli.run(parse_ship(ship_arguments(server, tmp_path / "aap.log", *arguments))) == 1
    assert "aap.log: cannot be read: No such file or directory" in capsys.readouterr().err


def test_a_dry_run_shows_the_first_record_of_each_file_and_sends_nothing(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run shows the first record of each file, skipped files and counts, and sends nothing."""
    (tmp_path / "a.log").write_text('{"n":1,"text":"[red]"}\nplain\nlast')
    (tmp_path / "b.bin").write_bytes(b"\0")
    assert cli.run(parse_ship(ship_arguments(server, tmp_path, "--dry-run"))) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"skipped {tmp_path}/b.bin: binary",
        f"{tmp_path}/a.log: 33 bytes, 1 of the first 3 in a known format",
        '  {"content": "{\\"n\\":1,\\"text\\":\\"[red]\\"}", "__file_offset__": "0", "n": "1", "text": "[red]"}',
        f"1 file, 33 bytes, to {PROJECT}/{LOGSTORE} at {server.url}: nothing was sent",
    ]
    assert server.count(PROJECT, LOGSTORE) == 0


def test_a_compressed_file_that_was_read_in_part_is_not_called_unsent_as_a_whole(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partly read compressed file is reported with its unsent rest, and an empty file is counted."""
    packed = gzip.compress(b"".join(b"%d\n" % number for number in range(1000)))
    (tmp_path / "a.gz").write_bytes(packed[:-8])
    (tmp_path / "b.log").write_text("line\n")
    (tmp_path / "c.log").touch()
    assert cli.run(parse_ship(ship_arguments(server, tmp_path, "--engine=local"))) == 1
    out = capsys.readouterr().out
    assert f"a.gz: 1,000 lines stored, 0 not stored, 0 in doubt, the rest of {decimal(len(packed) - 8)} (compr" in out
    assert "2 files stored completely" in out
    assert "0; the job failed" not in out


def test_a_dry_run_lists_every_file(tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run lists every file; a damaged one after ten valid ones gives exit code 1."""
    for number in range(10):
        (tmp_path / f"{number}.log").write_text("line\n")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x")[:15])
    assert cli.run(parse_ship(ship_arguments(server, tmp_path, "--dry-run"))) == 1
    out = capsys.readouterr().out
    assert out.count(".log: 5 bytes") == 10
    assert "a.gz: 15 bytes, gzip, " in out


def test_a_name_that_a_terminal_would_obey_is_shown_in_one_line(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A newline or escape in a file name or log is shown with a backslash."""
    (tmp_path / "a\n\x1b[31mb.log").write_text("\x9b31mred\n")
    (tmp_path / "c\rd.bin").write_bytes(b"\0")
    assert cli.run(parse_ship(ship_arguments(server, tmp_path, "--dry-run"))) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        f"skipped {tmp_path}/c\\rd.bin: binary",
        f"{tmp_path}/a\\n\\x1b[31mb.log: 9 bytes, 0 of the first 1 in a known format",
        '  {"content": "\\x9b31mred", "__file_offset__": "0"}',
    ]


def test_a_dry_run_exits_with_1_for_a_damaged_file_2_for_a_missing_one_and_refuses_a_checkpoint(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run exits with 1 for a damaged file, 2 for a missing one, and refuses a checkpoint."""
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x")[:15])
    arguments = ship_arguments(server, tmp_path / "a.gz", "--dry-run")
    assert cli.run(parse_ship(arguments)) == 1
    assert "a.gz: 15 bytes, gzip, " in capsys.readouterr().out
    assert cli.run(parse_ship([str(tmp_path / "none.log"), *arguments])) == 1
    assert "none.log: cannot be read: No such file" in capsys.readouterr().out
    for more, said in (
        (["--exclude=*.gz"], "--exclude leaves no file to ship"),
        (["--follow", f"--checkpoint={tmp_path / 'c'}"], "leave out --follow, --exactly-once and -"),
    ):
        assert cli.run(parse_ship([*more, *arguments])) == 2
        assert said in capsys.readouterr().err


def test_a_run_that_ships_appended_lines_does_not_report_that_nothing_was_new(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that ships appended lines does not report that nothing was new."""
    path = tmp_path / "a.log"
    path.write_text("one\n")
    arguments = ship_arguments(
        server, path, "--engine=local", "--follow", "--once", "--checkpoint", tmp_path / "checkpoint"
    )
    assert cli.run(parse_ship(arguments)) == 0
    with path.open("a") as file:
        file.write("two\n")
    capsys.readouterr()
    assert cli.run(parse_ship(arguments)) == 0
    assert "nothing new" not in capsys.readouterr().out
    assert server.count(PROJECT, LOGSTORE) == 2


@pytest.mark.parametrize(("operation", "code"), [("ListShards", 2), ("PutLogs", 1)])
def test_ship_fails_when_nothing_was_acknowledged_for_its_time(
    tmp_path: Path, server: LogHubServer, capsys: pytest.CaptureFixture[str], operation: str, code: int
) -> None:
    """``--ack-timeout`` limits all attempts together, and the check before the job."""
    (tmp_path / "a.log").write_text("one\n")
    server.faults.add(delay(PATIENCE), operation=operation, times=100)
    began = time.monotonic()
    assert cli.run(parse_ship(ship_arguments(server, tmp_path / "a.log", "--engine=local", "--ack-timeout=1"))) == code
    assert time.monotonic() - began < allowed(1 + 4)
    printed = capsys.readouterr()
    assert code == 2 or "1 task attempt; the job failed" in printed.out
    server.faults.clear()


@pytest.mark.parametrize("lasting", [False, True], ids=["without a checkpoint", "with one"])
def test_interrupt_ends_the_command_soon(tmp_path: Path, server: LogHubServer, lasting: bool) -> None:
    """Ctrl-C while the server does not respond ends the command with 130 and its results, without a trace."""
    (tmp_path / "a.log").write_text("one\n")
    silence = server.faults.add(delay(PATIENCE))
    checkpoint = tmp_path / "checkpoint"
    options = ["--exactly-once", "--checkpoint", checkpoint] if lasting else []
    command = start_ship(*ship_arguments(server, tmp_path / "a.log", *options))
    try:
        wait_for(lambda: silence.fired > 0, command)
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=PATIENCE / 2)
    finally:
        command.kill()
    assert command.returncode == 130
    known = f"run it again with --checkpoint {checkpoint} to continue" if lasting else "an unknown part of the records"
    assert "interrupted: " in err
    assert known in err
    assert "Traceback" not in err
