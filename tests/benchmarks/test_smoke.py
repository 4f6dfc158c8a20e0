"""Every case of the benchmark runs, tiny, and none can be fast by sending nothing."""

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
#: Where each way of each client comes first: the same again, with other logs, would only take its time.
FIRST: dict[tuple[str, str], str] = {}
for _case in CASES.values():
    for _run in _case.runs.values():
        FIRST.setdefault((_run.client, _run.way), _case.id)
# The first of the tests with peers installs them, unless that was done before.
pytestmark = pytest.mark.timeout(600)
RUN = Run(client="ours", way="send", count=2000)


def tiny(case: Case) -> Case:
    """As small as a case can be, with as few processes; of an axis the first two places, of the peers each way once."""
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
    """Why peers cannot run here: see test_peers.py."""
    return prepare(PEERS)


@pytest.fixture(scope="module")
def sent(participants: Participants) -> tuple[Answer, dict[str, Any]]:
    """A run of ours, and what the server has of it."""
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
def test_each_run_ends_all_its_logs_are_delivered_and_what_arrived_was_decoded_and_is_what_was_sent(
    case: Case, participants: Participants, reasons: dict[str, str]
) -> None:
    """Each run ends, all its logs are delivered, and what arrived was decoded and is what was sent."""
    small = tiny(case)
    found: CaseResult = measure(small, participants, 1, reasons)
    assert found.left_out.items() <= reasons.items()
    assert found.runs.keys() == {name for name, run in small.runs.items() if run.client not in reasons}
    sending = [
        run for run in found.runs.values() if run.run.way not in WAITING and not run.run.client.startswith("encoding")
    ]
    assert [run.rounds[0].answer.delivered for run in sending] == [run.run.count for run in sending]


def test_runs_alternate_and_are_warmed_up(participants: Participants) -> None:
    """A B A B, after a smaller A B that does not count."""
    order: list[int] = []
    runs = {"a": dataclasses.replace(RUN, count=10_000), "b": dataclasses.replace(RUN, count=20_000)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.benchmarks.measure.check", lambda run, *_, **__: order.append(run.count))
        found = measure(Case(id="ab", title="", kind="rate", runs=runs, one_process=True), participants, 2, {})
    assert order == [1000, 2000, 10_000, 20_000, 10_000, 20_000]
    assert [len(run.rounds) for run in found.runs.values()] == [2, 2]


def test_an_honest_run_passes_the_check(sent: tuple[Answer, dict[str, Any]]) -> None:
    """So that the others fail for their own reason."""
    check(RUN, *sent)


def test_a_log_that_was_not_delivered_is_found_out(sent: tuple[Answer, dict[str, Any]]) -> None:
    """One of two thousand is enough."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="1,999 of 2,000"):
        check(RUN, dataclasses.replace(answer, delivered=1999), counts)


def test_logs_that_did_not_arrive_are_found_out(sent: tuple[Answer, dict[str, Any]]) -> None:
    """A client that claims more than it sends: the bytes at the server do not suffice."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="raw bytes"):
        check(dataclasses.replace(RUN, count=2100), dataclasses.replace(answer, delivered=2100), counts)


def test_requests_with_wrong_headers_are_found_out(sent: tuple[Answer, dict[str, Any]]) -> None:
    """Even if they were sent again."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="wrong headers"):
        check(RUN, answer, counts | {"bad": 1, "problem": "no Authorization"})


@pytest.mark.parametrize(("old", "new"), [(b"bytes", b"b_tes"), (b"Mozilla", b"Gorilla"), (b"topic-0", b"topic-9")])
def test_a_tampered_sample_is_found_out(sent: tuple[Answer, dict[str, Any]], old: bytes, new: bytes) -> None:
    """Another name, another value, another stream."""
    answer, counts = sent
    first, *others = counts["samples"]
    raw = decompress(base64.b64decode(first["body"]), first["compression"], int(first["raw_size"]))
    body = base64.b64encode(compress(raw.replace(old, new, 1), "lz4")).decode()
    with pytest.raises(WrongSampleError):
        check(RUN, answer, counts | {"samples": [first | {"body": body}, *others]})


def test_a_body_that_never_came_is_found_out(sent: tuple[Answer, dict[str, Any]]) -> None:
    """A server without samples has not been sent to."""
    answer, counts = sent
    with pytest.raises(WrongSampleError, match="no body"):
        check(RUN, answer, counts | {"samples": []})


def test_a_failing_peer_is_left_out_with_the_last_line_of_its_error(participants: Participants) -> None:
    """With the last line of its error as the reason, in every round."""
    runs = {"ours": RUN, "theirs": dataclasses.replace(RUN, client="nobody")}
    found = measure(Case(id="bad", title="", kind="rate", runs=runs, one_process=True), participants, 2, {})
    assert {name: len(run.rounds) for name, run in found.runs.items()} == {"ours": 2}
    assert found.left_out.keys() == {"theirs"}
    assert "No module named tests.benchmarks.clients.nobody" in found.left_out["theirs"]  # prose: a module


def test_a_short_run_is_repeated_and_its_median_counts(participants: Participants) -> None:
    """So that it can be compared with one that takes a hundred times as long."""
    answers: list[float] = []
    case = Case(id="short", title="", kind="rate", runs={"ours": dataclasses.replace(RUN, repeat=3)}, most_rounds=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.benchmarks.measure.check", lambda _, answer, *__, **___: answers.append(answer.seconds))
        found = measure(case, participants, 1, {})
    assert [one.answer.seconds for one in found.runs["ours"].rounds] == [sorted(answers)[1]]
    assert len(answers) == 3


def test_a_failure_of_ours_ends_the_benchmark(participants: Participants, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of ours is left out."""
    wrong = Case(id="bad", title="", kind="rate", runs={"ours": RUN}, most_rounds=1)
    monkeypatch.setattr("tests.benchmarks.samples.streams_of", lambda count: [("another", "stream")] * count)
    with pytest.raises(WrongSampleError):
        measure(wrong, participants, 1, {})


def test_the_command_writes_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and plots beside it; the prose stays, and the results are kept."""
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


def test_from_kept_results_alone_which_also_know_the_file_whose_lines_were_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From kept results alone, which also know the file whose lines were sent."""
    (tmp_path / "some.log").write_text("".join(f"line {number}\n" for number in range(100)))
    results = tmp_path / "results.json"
    arguments = ["--case", "file", "--file", str(tmp_path / "some.log"), "--peers", "--rounds", "1", "--scale", "0.001"]
    assert main([*arguments, "--results", str(results)]) == 0
    first = capsys.readouterr().out
    assert "### `file`: Lines of `some.log`, one stream" in first
    assert main(["--from", str(results)]) == 0
    assert capsys.readouterr().out == first


def test_the_command_knows_its_cases(capsys: pytest.CaptureFixture[str]) -> None:
    """``--list`` names them, and an unknown one is an error that does so, too."""
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in CASES if f"{name} " not in listed] == []
    assert main(["--case", "wbe"]) == 2
    assert "no such case: wbe" in capsys.readouterr().err


def test_the_channels_benchmark_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Commits, group commit, replay."""
    assert channels.main(["--count", "1000", "--events", "2000", "--rounds", "1"]) == 0
    printed = capsys.readouterr().out
    for line in ("| file, fsync commit | 100 |", "| 16 |", "| from the log alone |"):
        assert line in printed
