"""Every case of the benchmark runs at a tiny size, and no client can be fast by sending nothing."""

import base64
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.wire.compression import compress, decompress

from . import channels
from .__main__ import main
from .cases import OURS, WAITING, Case, Run
from .catalogue import all_cases
from .clients.protocol import Answer
from .measure import measure
from .participants import Participants
from .peers import PEERS, prepare
from .results import CaseResult
from .samples import WrongSampleError, check
from .server import take_counts

CASES = all_cases(str(Path(__file__)))
#: The first case with each way of each client; the tests run a peer's way only there, to save time.
FIRST: dict[tuple[str, str], str] = {}
for _case in CASES.values():
    for _run in _case.runs.values():
        FIRST.setdefault((_run.client, _run.way), _case.id)
# The first of the tests with peers installs them unless they are installed.
pytestmark = pytest.mark.timeout(600)
RUN = Run(client="ours", way="send", count=2000)


def tiny(case: Case) -> Case:
    """Return the smallest case: two values of an axis, each way of a peer once, and one process per client."""
    small = case.scaled(0.0001)
    places = sorted({run.x for run in small.runs.values()})[:2]
    runs = {
        name: run
        for name, run in small.runs.items()
        if run.x in places and (run.client in OURS or FIRST[run.client, run.way] == case.id)
    }
    return dataclasses.replace(small, runs=runs, most_rounds=1, one_process=True)


@pytest.fixture(scope="module")
def participants() -> Iterator[Participants]:
    with Participants() as participants:
        yield participants


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    """Return the reasons why peers cannot run here; see test_peers.py."""
    return prepare(PEERS)


@pytest.fixture(scope="module")
def sent(participants: Participants) -> tuple[Answer, dict[str, Any]]:
    """Return the answer of one of our runs, and the server's counts."""
    take_counts(participants.port)
    case = Case(id="one", title="", kind="rate", runs={"ours": RUN}, most_rounds=1)
    answers: list[tuple[Answer, dict[str, Any]]] = []

    def keep(run: Run, answer: Answer, counts: dict[str, Any], **_: Any) -> None:
        answers.append((answer, counts))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.benchmarks.measure.check", keep)
        measure(case, participants, 1, {})
    return answers[0]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_run_of_a_case_ends_delivers_all_its_logs_and_passes_the_check(
    case: Case, participants: Participants, reasons: dict[str, str]
) -> None:
    """Every run of a case ends, delivers all its logs and passes the check of the arrived ones."""
    small = tiny(case)
    found: CaseResult = measure(small, participants, 1, reasons)
    assert found.left_out.items() <= reasons.items()
    assert found.runs.keys() == {name for name, run in small.runs.items() if run.client not in reasons}
    sending = [
        run for run in found.runs.values() if run.run.way not in WAITING and not run.run.client.startswith("encoding")
    ]
    assert [run.rounds[0].answer.delivered for run in sending] == [run.run.count for run in sending]


def test_runs_alternate_after_a_warm_up_that_does_not_count(participants: Participants) -> None:
    """Runs alternate, after a smaller warm-up of each that does not count."""
    order: list[int] = []
    runs = {"a": dataclasses.replace(RUN, count=10_000), "b": dataclasses.replace(RUN, count=20_000)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.benchmarks.measure.check", lambda run, *_, **__: order.append(run.count))
        found = measure(Case(id="ab", title="", kind="rate", runs=runs, one_process=True), participants, 2, {})
    assert order == [1000, 2000, 10_000, 20_000, 10_000, 20_000]
    assert [len(run.rounds) for run in found.runs.values()] == [2, 2]


def test_a_complete_run_passes_the_check(sent: tuple[Answer, dict[str, Any]]) -> None:
    """A complete run passes the check, so the next tests fail for their own reasons."""
    check(RUN, *sent)


def test_the_check_fails_if_one_of_two_thousand_logs_is_not_delivered(sent: tuple[Answer, dict[str, Any]]) -> None:
    """The check fails if one of two thousand logs is not delivered."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="1,999 of 2,000"):
        check(RUN, dataclasses.replace(answer, delivered=1999), counts)


def test_the_check_fails_if_the_server_got_fewer_bytes_than_the_client_counts(
    sent: tuple[Answer, dict[str, Any]],
) -> None:
    """The check fails if the server got fewer bytes than the logs that the client counts."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="raw bytes"):
        check(dataclasses.replace(RUN, count=2100), dataclasses.replace(answer, delivered=2100), counts)


def test_the_check_fails_after_a_request_with_wrong_headers(sent: tuple[Answer, dict[str, Any]]) -> None:
    """The check fails after a request with wrong headers, even if it was repeated."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="wrong headers"):
        check(RUN, answer, counts | {"bad": 1, "problem": "no Authorization"})


@pytest.mark.parametrize(("old", "new"), [(b"bytes", b"b_tes"), (b"Mozilla", b"Gorilla"), (b"topic-0", b"topic-9")])
def test_the_check_fails_if_a_name_a_value_or_the_stream_is_another_one(
    sent: tuple[Answer, dict[str, Any]], old: bytes, new: bytes
) -> None:
    """The check fails if a name, a value or the stream of a sample is another one."""
    answer, counts = sent
    first, *others = counts["samples"]
    raw = decompress(base64.b64decode(first["body"]), first["compression"], int(first["raw_size"]))
    body = base64.b64encode(compress(raw.replace(old, new, 1), "lz4")).decode()
    with pytest.raises(WrongSampleError):
        check(RUN, answer, counts | {"samples": [first | {"body": body}, *others]})


def test_the_check_fails_if_no_body_arrived(sent: tuple[Answer, dict[str, Any]]) -> None:
    """The check fails if no body arrived."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="no body"):
        check(RUN, answer, counts | {"samples": []})


def test_a_failing_peer_is_left_out_with_the_last_line_of_its_error(participants: Participants) -> None:
    """A peer that fails is left out in every round, and the last line of its error is the reason."""
    runs = {"ours": RUN, "theirs": dataclasses.replace(RUN, client="nobody")}
    found = measure(Case(id="bad", title="", kind="rate", runs=runs, one_process=True), participants, 2, {})
    assert {name: len(run.rounds) for name, run in found.runs.items()} == {"ours": 2}
    assert found.left_out.keys() == {"theirs"}
    assert "No module named tests.benchmarks.clients.nobody" in found.left_out["theirs"]  # prose: a module


def test_a_short_run_is_repeated_and_its_median_counts(participants: Participants) -> None:
    """A short run is repeated in a round, and the median of its seconds counts."""
    answers: list[float] = []
    case = Case(id="short", title="", kind="rate", runs={"ours": dataclasses.replace(RUN, repeat=3)}, most_rounds=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.benchmarks.measure.check", lambda _, answer, *__, **___: answers.append(answer.seconds))
        found = measure(case, participants, 1, {})
    assert [one.answer.seconds for one in found.runs["ours"].rounds] == [sorted(answers)[1]]
    assert len(answers) == 3


def test_a_failure_of_our_client_ends_the_benchmark(
    participants: Participants, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of our client ends the benchmark."""
    wrong = Case(id="bad", title="", kind="rate", runs={"ours": RUN}, most_rounds=1)
    monkeypatch.setattr("tests.benchmarks.samples.streams_of", lambda count: [("another", "stream")] * count)
    with pytest.raises(WrongSampleError):
        measure(wrong, participants, 1, {})


def test_the_command_writes_tables_and_plots_and_keeps_the_text_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command writes tables and plots, keeps the text around them, and stores the results."""
    document, tables, results = tmp_path / "benchmarks.md", tmp_path / "RESULTS.md", tmp_path / "results.json"
    document.write_text("before\n<!-- summary:begin --><!-- summary:end -->\nafter\n")
    tables.write_text("<!-- tables:begin -->\nold\n<!-- tables:end -->\n")
    monkeypatch.setattr("tests.benchmarks.__main__.DOCUMENT", document)
    monkeypatch.setattr("tests.benchmarks.__main__.TABLES", tables)
    arguments = ["--case", "kept", "--peers", "--rounds", "1", "--scale", "0.001", "--write"]
    assert main([*arguments, "--results", str(results)]) == 0
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in tables.read_text()
    assert "| ours, pure: kept |" in tables.read_text()
    assert (tmp_path / "benchmarks-everyday.svg").exists()
    assert "](benchmarks-everyday.svg)" in text
    assert results.exists()


def test_a_report_from_stored_results_equals_the_first_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report from stored results equals the first one, even without the file whose lines were sent."""
    (tmp_path / "some.log").write_text("".join(f"line {number}\n" for number in range(100)))
    results = tmp_path / "results.json"
    arguments = ["--case", "file", "--file", str(tmp_path / "some.log"), "--peers", "--rounds", "1", "--scale", "0.001"]
    assert main([*arguments, "--results", str(results)]) == 0
    first = capsys.readouterr().out
    assert "### `file`: Lines of `some.log`, one stream" in first
    assert main(["--from", str(results)]) == 0
    assert capsys.readouterr().out == first


def test_list_names_all_cases_and_an_unknown_case_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """``--list`` names all cases, and an unknown case is an error."""
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in CASES if f"{name} " not in listed] == []
    assert main(["--case", "wbe"]) == 2
    assert "no such case: wbe" in capsys.readouterr().err


def test_the_channels_benchmark_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """The channels benchmark prints the tables of commits, group commit and replay."""
    assert channels.main(["--count", "1000", "--events", "2000", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    for line in ("| file, fsync commit | 100 |", "| 16 |", "| from the log alone |"):
        assert line in printed
