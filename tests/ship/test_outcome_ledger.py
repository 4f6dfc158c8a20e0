"""The report of a failed job: lines stored, not stored, and in doubt, by file, and the requests it took."""

import gzip
import io
import itertools
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from producer.cli import ship as cli
from producer.server import LogHubServer
from producer.server.faults import Action, ApiRequest, Cut, Refuse, answer
from producer.ship import spark_engine
from producer.ship.figures import Figures
from producer.ship.files.find import Search
from producer.ship.files.log_file import LogFile
from producer.ship.files.plan import Split
from producer.ship.job import ShipJob
from producer.ship.lines.line import Block, Line
from producer.ship.local_engine import LocalEngine
from producer.ship.outcome_ledger import Account, FileOutcome, Stored
from producer.ship.portions import Portion
from producer.ship.report import Shipment, outcomes
from producer.ship.shipment import Engine, ship_search
from producer.ship.spark_engine import SparkEngine

from .conftest import LOGSTORE, PROJECT, contents, parse_ship, ship_arguments

MakeJob = Callable[..., ShipJob]

FILES, LINES = 10, 10


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Use an engine with one or two tasks, so that there is one portion."""
    if request.param == "local":
        return LocalEngine(1)
    return SparkEngine(request.getfixturevalue("spark").sparkContext)


class Dying:
    """A server that accepts some requests, stores one without a response, and refuses the others."""

    def __init__(self, accepted: int) -> None:
        self._accepted = accepted
        self.requests = 0

    def __call__(self, _: ApiRequest) -> Action | None:
        self.requests += 1
        if self.requests <= self._accepted:
            return None
        return Cut("stored") if self.requests == self._accepted + 1 else Refuse(status=404, code="ProjectNotExist")


def write_files(folder: Path) -> None:
    for number in range(FILES):
        (folder / f"{number}.log").write_text("".join(f"line {line}\n" for line in range(LINES)))


def test_a_server_that_dies_in_the_middle_leaves_an_account_of_every_line(
    engine: Engine, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """After a server failure each line is stored, in doubt or not stored over all attempts; requests count."""
    write_files(tmp_path)
    dying = Dying(accepted=4)
    server.faults.add(dying, operation="PutLogs")
    job = make_job(parser="text", producer={"retries": 0})
    shipment = ship_search(engine, Search([str(tmp_path)]), job, console=Console(file=io.StringIO()))
    assert shipment.failure is not None
    assert "ProjectNotExist" in shipment.failure
    kinds = [(file.stored, file.not_stored, file.in_doubt) for file in shipment.files]
    assert sorted(kinds) == [(0, 0, 10)] + 5 * [(0, 10, 0)] + 4 * [(10, 0, 0)]
    assert [file.unsent_bytes for file in shipment.files] == 10 * [0]
    assert (shipment.figures.attempts, shipment.figures.batches) == (dying.requests, 4)
    assert shipment.failed_attempts == 4


def test_a_damaged_file_is_reported_and_nothing_is_sent_twice(
    engine: Engine, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A damaged file is reported, and its neighbours are shipped once."""
    (tmp_path / "a.log").write_text("a\n" * 100)
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"b\n")[:-4])
    (tmp_path / "c.log").write_text("c\n" * 50)
    shipment = ship_search(engine, Search([str(tmp_path)]), make_job(), console=Console(file=io.StringIO()))
    assert shipment.failure is not None
    assert "b.gz: damaged or incomplete gzip data" in shipment.failure
    assert (shipment.failed_attempts, shipment.figures.lines, shipment.figures.records) == (0, 151, 151)
    assert Counter(contents(server)) == {"a": 100, "b": 1, "c": 50}
    assert [Path(file.path).name for file in shipment.files if not file.complete] == ["b.gz"]


def test_the_next_attempt_sends_only_lines_that_are_not_stored(
    engine: Engine, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """The next attempt sends only lines that are not stored."""
    write_files(tmp_path)
    requests = itertools.count()

    def refuse_for_a_while(_: ApiRequest) -> Action | None:
        return Refuse(status=404, code="ProjectNotExist") if 4 <= next(requests) < 10 else None

    server.faults.add(refuse_for_a_while, operation="PutLogs")
    job = make_job(parser="text", producer={"retries": 0})
    shipment = ship_search(engine, Search([str(tmp_path)]), job, console=Console(file=io.StringIO()))
    assert (shipment.failure, shipment.failed_attempts, shipment.figures.lines) == (None, 1, FILES * LINES)
    assert server.count(PROJECT, LOGSTORE) == FILES * LINES


def test_the_table_and_the_report_of_a_failed_job_have_the_same_number_of_lines(
    engine: Engine, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """The table and the report of a failed job have the same number of lines."""
    write_files(tmp_path)
    server.faults.add(Dying(accepted=4), operation="PutLogs")
    job = make_job(parser="text", producer={"retries": 0})
    shipment = ship_search(engine, Search([str(tmp_path)]), job, console=Console(file=io.StringIO()))
    assert shipment.failure is not None
    assert (shipment.figures.lines, shipment.figures.records) == (40, 40)
    assert sum(file.stored for file in shipment.files) == 40


def test_unread_data_is_reported_in_bytes_the_rest_of_a_file_or_a_whole_portion(
    engine: Engine, tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Unread data is reported in bytes: the rest of a file, or a whole portion."""
    (tmp_path / "a.log").write_text("one\n")
    (tmp_path / "b.log").write_text("two\n")
    search = Search([str(tmp_path)])
    search.advance()
    (tmp_path / "b.log").unlink()
    shipment = ship_search(engine, search, make_job(parser="text"), console=Console(file=io.StringIO()))
    assert shipment.failure is not None
    a, b = shipment.files
    assert (a.stored, a.complete) == (1, True)
    assert (b.stored, b.not_stored, b.in_doubt, b.unsent_bytes) == (0, 0, 0, 4)


@pytest.fixture
def command(server: LogHubServer, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs the command with an engine, and returns exit code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.run(parse_ship(ship_arguments(server, *arguments)))
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_after_the_table_the_command_reports_sums_incomplete_files_complete_ones_and_the_remedy(
    tmp_path: Path, server: LogHubServer, command: Callable[..., tuple[int, str, str]]
) -> None:
    """After the table, the command reports sums, incomplete files, complete ones, and the remedy."""
    write_files(tmp_path)
    server.faults.add(Dying(accepted=4), operation="PutLogs")
    code, out, _ = command(tmp_path, "--engine=local", "--workers=1", "--producer-option=retries=0")
    assert code == 1
    assert "all files together: 40 lines stored, 50 not stored, 10 in doubt\n" in out
    assert out.count(".log: 0 lines stored, 10 not stored, 0 in doubt\n") == 5
    assert out.count(".log: 0 lines stored, 0 not stored, 10 in doubt\n") == 1
    assert "  4 files stored completely\n" in out
    assert "To continue, fix the cause and run the same command again." in out


WRONG = {
    "InvalidAccessKeyId": "--access-key-id or LOGHUB_ACCESS_KEY_ID: ",
    "SignatureNotMatch": "--access-key-secret or LOGHUB_ACCESS_KEY_SECRET: ",
    "ProjectNotExist": "--project ",
    "LogStoreNotExist": "--logstore ",
}


@pytest.mark.parametrize("engine_name", ["local", "spark"])
@pytest.mark.parametrize(("code", "said"), WRONG.items())
def test_an_invalid_target_is_reported_by_its_argument_before_spark_starts_with_exit_code_2(
    tmp_path: Path,
    server: LogHubServer,
    command: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    engine_name: str,
    code: str,
    said: str,
) -> None:
    """An invalid target is reported by its argument before Spark starts, with exit code 2."""
    monkeypatch.setattr(spark_engine, "running_context", lambda **_: pytest.fail("Spark was started"))
    write_files(tmp_path)
    server.faults.add(answer(404, code))
    exit_code, out, errors = command(tmp_path, f"--engine={engine_name}")
    assert (exit_code, out) == (2, "")
    assert errors.startswith(f"error: {said}")
    assert code in errors
    assert "nothing was sent" in errors
    assert not any(name in errors for name in ("accessKey", "checkTarget", "option "))


@pytest.mark.parametrize("engine_name", ["local", "spark"])
def test_an_unreachable_endpoint_is_reported_before_the_start_with_exit_code_2(
    tmp_path: Path,
    server: LogHubServer,
    command: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    engine_name: str,
) -> None:
    """An unreachable endpoint is reported before the start, with exit code 2."""
    monkeypatch.setattr(spark_engine, "running_context", lambda **_: pytest.fail("Spark was started"))
    write_files(tmp_path)
    server.stop()
    exit_code, out, errors = command(tmp_path, f"--engine={engine_name}")
    assert (exit_code, out) == (2, "")
    assert f"--endpoint {server.endpoint}: RequestError: no connection" in errors


@pytest.mark.parametrize("engine_name", ["local", "spark"])
def test_exclude_that_leaves_nothing_is_as_wrong_as_a_pattern_that_matches_nothing(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]], engine_name: str
) -> None:
    """An ``--exclude`` that leaves no file is an error with exit code 2, like a pattern without a match."""
    write_files(tmp_path)
    code, _, errors = command(tmp_path, f"--engine={engine_name}", "--exclude=*.log")
    assert (code, "--exclude leaves no file to ship (10 files left out)" in errors) == (2, True)
    code, _, errors = command(f"{tmp_path}/*.txt", f"--engine={engine_name}")
    assert (code, "no file matches this pattern" in errors) == (2, True)


def _account(*, stored: int = 0, doubt: int = 0) -> Account:
    account = Account()
    place = account.begin("a.log", Block(0, b"one\ntwo\nthree\n"))
    account.store(place, stored)
    account.doubt(place, doubt)
    return account


PLAIN = LogFile("a.log", 20, None, 1, 1)


@pytest.mark.parametrize(
    ("attempts", "fate"),
    [
        ([_account(stored=3), _account()], (3, 0, 0)),
        ([_account(doubt=3), _account(stored=3)], (3, 0, 0)),
        ([_account(), _account(doubt=3), _account()], (0, 0, 3)),
        ([_account(), _account()], (0, 3, 0)),
    ],
)
def test_the_best_of_several_attempts_counts(attempts: list[Account], fate: tuple[int, int, int]) -> None:
    """The best outcome of several attempts is used: stored, then in doubt, then not stored."""
    total = Account()
    for attempt in attempts:
        total += attempt
    (file,) = total.files([Portion((Split(PLAIN, 0, 20),))], ())
    assert (file.stored, file.not_stored, file.in_doubt, file.unsent_bytes) == (*fate, 6)


def test_after_an_attempt_that_ended_without_a_word_nothing_is_called_not_stored() -> None:
    """After an attempt without a report, no line is reported as not stored, as it may be stored."""
    (file,) = _account(stored=1).files([Portion((Split(PLAIN, 0, 20),))], {0})
    assert file == FileOutcome("a.log", stored=1, in_doubt=2, doubtful_bytes=6)


def test_a_portion_that_is_stored_takes_a_number_a_range() -> None:
    """A completed portion keeps only a number per range, even next to failed attempts."""
    files = [LogFile(f"{number}.log", 4_000, None, 1, number) for number in range(1_000)]
    portions = [Portion(tuple(Split(file, 0, 4_000) for file in files)), Portion((Split(PLAIN, 0, 20),))]
    failed, stored = Account(), Account()
    for account in (failed, stored):
        for number, file in enumerate(files):
            for offset in range(0, 4_000, 1_000):
                place = account.begin(file.path, Block(offset, b"one\n" * (number + 1)))
                account.store(place, number + 1 if account is stored else 0)
    stored.end(portions[0])
    assert len(pickle.dumps(stored)) < 5_000
    total = Account()
    for attempt in (failed, stored, _account(doubt=3)):
        total += attempt
    *complete, last = total.files(portions, ())
    assert complete == [FileOutcome(file.path, stored=4 * (number + 1)) for number, file in enumerate(files)]
    assert last == FileOutcome("a.log", in_doubt=3, unsent_bytes=6)


def test_a_long_line_is_stored_when_all_its_pieces_are() -> None:
    """A long line is stored when all its pieces are; some of them leave it in doubt."""
    account = Account()
    for part in (1, 2):
        place = account.begin("a.log", Line(0, part, b"x" * 10))
    account.store(place, 1)
    portions = [Portion((Split(PLAIN, 0, 20),))]
    assert account.files(portions, ())[0].in_doubt == 1
    account.store(place, 1)
    assert account.files(portions, ())[0].stored == 1


def test_the_next_attempt_skips_stored_blocks() -> None:
    """The next attempt skips stored blocks; a block stored in part is sent again, a long line without its stored
    pieces.
    """
    account = Account()
    for data, stored in ((b"one\ntwo\n", 2), (b"three\nfour\n", 1)):
        place = account.begin("a.log", Block(len(data), data))
        account.store(place, stored)
    for part in (1, 2):
        account.store(account.begin("a.log", Line(99, part, b"x" * 10)), 1)
    stored = Stored(account)
    assert stored.has("a.log", Block(8, b"one\ntwo\n"))
    assert not stored.has("b.log", Block(8, b"one\ntwo\n"))
    assert not stored.has("a.log", Block(11, b"three\nfour\n"))
    assert [stored.has("a.log", Line(99, part, b"x" * 10)) for part in (1, 2, 3)] == [True, True, False]
    assert not Stored(account).has("a.log", Block(8, b"one\ntwo\nthree\n"))


def test_many_files_are_not_all_named() -> None:
    """At most twenty files are named, with the number of the others."""
    lines = outcomes(
        Shipment(Figures(), 0.0, files=[FileOutcome(f"{number}.log", not_stored=1) for number in range(30)])
    )
    assert lines[0] == "all files together: 0 lines stored, 30 not stored, 0 in doubt"
    assert "  and 10 more files that are not stored completely" in lines
    assert len(lines) == 1 + 20 + 3
