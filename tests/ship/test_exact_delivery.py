"""One range with ``--exactly-once``: the report of lines that were not stored, and halves of large requests."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.server.faults import Fault, answer, delay, drop_answer
from producer.ship import exact_delivery
from producer.ship.figures import Figures
from producer.ship.files.find import Search
from producer.ship.files.plan import plan
from producer.ship.job import ShipJob
from producer.ship.lines.chunks import chunks_of
from producer.ship.lines.line import Line
from producer.ship.outcome_ledger import FileOutcome
from producer.ship.portions import Portion
from producer.ship.sending import PortionSender
from producer.spark.executor import leased_producer

from .conftest import LOGSTORE, PATIENCE, PROJECT, held

MakeJob = Callable[..., ShipJob]


def ship(portion: Portion, job: ShipJob) -> Figures:
    with leased_producer(job.project, config=job.config) as producer:
        return PortionSender(producer, job).ship(portion)[0]


def portion_of(path: Path) -> Portion:
    (splits,) = plan(Search([str(path)]).all().files)
    return Portion(splits, run="job")


@pytest.mark.parametrize(
    ("fault", "fate"),
    [
        (drop_answer(), {"in_doubt": 3}),
        (delay(PATIENCE), {"in_doubt": 3}),
        (answer(404, "LogStoreNotExist"), {"not_stored": 3}),
    ],
    ids=["an answer that is lost", "an answer that does not come", "a refusal"],
)
def test_lines_are_in_doubt_only_if_they_may_be_stored(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, fault: Fault, fate: dict[str, int]
) -> None:
    """Lines are in doubt only if they may be stored: a refusal is not stored, a lost response is in doubt."""
    (tmp_path / "a.log").write_text("one\ntwo\nthree\n")
    server.faults.add(fault, operation="PutLogs")
    portion = portion_of(tmp_path / "a.log")
    job = make_job(parser="text", exactly_once=True, ack_timeout=1.0, producer={"retries": 0})
    with leased_producer(job.project, config=job.config) as producer:
        _, account = PortionSender(producer, job).ship(portion)
    assert account.files([portion], ()) == [FileOutcome(str(tmp_path / "a.log"), **fate)]


def test_lines_too_large_for_a_request_are_sent_in_halves_each_stored_and_counted_once(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines too large for a request are sent in halves, each stored and counted once."""
    monkeypatch.setattr(exact_delivery, "_MOST_BYTES", 2_000)
    lines = [f"no JSON {number}" for number in range(300)]
    (tmp_path / "a.log").write_text("".join(f"{line}\n" for line in [*lines, "y" * 2500]))
    job = make_job(parser="json", exactly_once=True, max_line_bytes=1000)
    first, again = (ship(portion_of(tmp_path / "a.log"), job) for _ in range(2))
    for figures in (first, again):
        assert (figures.lines, figures.unparsed, figures.long_lines, figures.records) == (301, 301, 1, 303)
    assert (first.already_stored, again.already_stored) == (0, 303)
    assert first.batches > 10
    assert Counter(log["content"] for log in held(server) if "line_part" not in log) == Counter(lines)
    assert server.count(PROJECT, LOGSTORE) == 303


def test_piece_without_a_byte_has_a_number_of_its_own() -> None:
    """An empty last piece of a log has its own number, or it would count as stored."""
    read = [Line(10, 1, b"abcd"), Line(10, 2, b""), Line(20, 0, b""), Line(21, 0, b"")]
    numbers = [chunk.number for chunk in chunks_of(iter(read))]
    assert numbers == sorted(set(numbers))
