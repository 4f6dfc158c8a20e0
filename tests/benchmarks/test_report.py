"""Results are kept, merged, judged and shown as they are."""

import dataclasses
from pathlib import Path

import pytest

from .cases import LATENCY_LINGER_MS, OUTAGE, Case
from .catalogue import all_cases
from .clients.protocol import Answer
from .goals import GOALS, verdicts
from .plots import draw_all
from .report import goals_table, insert, report
from .results import CaseResult, Measured, Results, RunResult, load, merge

CASES = all_cases("a file")


@pytest.mark.parametrize("case", ["java", "small", "threads", "outage"])
def test_a_run_of_ours_is_done_by_the_program_that_sends(case: str) -> None:
    """A run of ours uses our program, even if another program's runs have its title, such as the integrations'."""
    clients = {run.line: run.client for run in CASES[case].runs.values()}
    assert (clients["ours: send"], clients["ours, pure: send"]) == ("ours", "pure")


def made_up(case: Case, rounds: int = 3, seconds: float = 1) -> CaseResult:
    """Results of a case in which every run takes so many seconds for 1,000 logs."""
    answer = Answer(
        seconds=seconds,
        cpu_seconds=seconds / 1000,
        peak_bytes=2**20,
        delivered=1000,
        send_seconds=[1e-6] * 5,
        ack_seconds=[0.1] * 5,
        figures={"sender_cpu_seconds": 0.01, "live_us": 2.0}
        | {"catch_up_seconds": 2.0, "catch_up_rate": 5e4, "catch_up_cpu": 1.0},
    )
    series = [(at / 10, 2.0**20, at / 20, at * 1e5) for at in range(200)]
    counts = {"requests": 10}
    runs = {
        name: RunResult(run=run, rounds=[Measured(answer=answer, counts=counts)] * rounds, log_bytes=100, series=series)
        for name, run in case.runs.items()
    }
    return CaseResult(id=case.id, runs=runs, machine={"CPU": "made up"})


@pytest.fixture
def results() -> Results:
    return {name: made_up(case) for name, case in CASES.items()}


def changed(results: Results, case: str, name: str, **answer: object) -> Results:
    """With another answer of a run, in all rounds."""
    found = results[case]
    run = found.runs[name]
    rounds = [
        dataclasses.replace(one, answer=dataclasses.replace(one.answer, **answer))  # type: ignore[arg-type]
        for one in run.rounds
    ]
    runs = found.runs | {name: dataclasses.replace(run, rounds=rounds)}
    return results | {case: dataclasses.replace(found, runs=runs)}


def met(results: Results, text: str) -> list[bool | None]:
    """Return the verdicts of the goals whose text begins with ``text``."""
    return [verdict.met for verdict in verdicts(results) if verdict.goal.text.startswith(text)]


def test_every_goal_is_about_runs_that_there_are(results: Results) -> None:
    """Each finds its figures in complete results: a figure a round."""
    assert [len(verdict.figures) for verdict in verdicts(results)] == [3] * len(GOALS)


@pytest.mark.parametrize(("seconds", "reached"), [(0.251, False), (0.249, True)])
def test_a_goal_that_is_missed_is_reported_as_missed(results: Results, seconds: float, reached: bool) -> None:
    """Four times as fast is met, a little less is missed, and the table says so with the figure."""
    found = changed(results, "java", "ours: send", seconds=seconds)
    text = "`send` against `aliyun-log-producer`"
    assert met(found, text) == [reached, False]  # of the web shape, too
    (line,) = (line for line in goals_table(verdicts(found)).splitlines() if f"| {text} | java" in line)
    assert line.endswith("| met |" if reached else "| **missed** |")
    assert f"| {1 / seconds:.3g} (" in line


@pytest.mark.parametrize(("milliseconds", "reached"), [(24.9, True), (25.1, False)])
def test_a_bound_that_is_passed_is_missed(results: Results, milliseconds: float, reached: bool) -> None:
    """The p99 until the acknowledgement may be 25 ms above the linger."""
    p99 = (LATENCY_LINGER_MS + milliseconds) / 1000
    found = changed(results, "latency-50k", "ours: send", ack_seconds=[0.1, 0.1, p99, 1.0, 1.0])
    assert met(found, "p99 from `send()`") == [reached]


@pytest.mark.parametrize(("seconds", "reached"), [(0.0021, False), (0.0019, True)])
def test_the_cost_of_a_request_is_that_of_the_requests_that_arrived(
    results: Results, seconds: float, reached: bool
) -> None:
    """Ten of them may take 2 ms of CPU, however many logs they held."""
    found = changed(results, "small", "ours: send", cpu_seconds=seconds)
    assert met(found, "CPU of the client for a request of one log") == [reached]


def test_a_durable_run_is_compared_with_that_of_as_many_threads(results: Results) -> None:
    """Not with that of one thread."""
    found = changed(results, "durable", "8 threads, no channel", seconds=0.5)
    text = "durable `send_many(100)`, share of non-durable, fsync os, "
    assert met(found, f"{text}1 thread") == [True]
    assert met(found, f"{text}8 threads") == [False]
    assert "| 8 threads, fsync os | 1,000 | 0 | 1,000,000 | 1 | 0.50 (0.50 to 0.50) |" in report(CASES, found)


def test_an_outage_after_which_nothing_was_seen_to_catch_up_is_not_judged(results: Results) -> None:
    """No samples, no figure."""
    found = changed(results, "outage", "official: send", figures={})
    assert met(found, "logs/s after an outage") == [None]


def test_the_median_of_the_rounds_decides(results: Results) -> None:
    """One slow round of three is shown, and changes nothing."""
    run = results["work"].runs["ours: send, 10,000,000 logs"]
    slow = dataclasses.replace(run.rounds[0], answer=dataclasses.replace(run.rounds[0].answer, cpu_seconds=1.0))
    run.rounds[1:] = [run.rounds[0], slow]
    (verdict,) = (one for one in verdicts(results) if one.goal.case == "work")
    assert verdict.met
    assert "| 1 (1 to 1,000) |" in goals_table([verdict])


def test_no_results_at_all_no_goal_is_met_nor_missed() -> None:
    """No results at all: no goal is met, nor missed."""
    assert {verdict.met for verdict in verdicts({})} == {None}
    assert "not measured" in goals_table(verdicts({}))


def test_the_report_contains_every_case(results: Results) -> None:
    """With a line for each run; a case without results says so."""
    text = report(CASES, results)
    for case in CASES.values():
        assert f"### `{case.id}`: {case.title}" in text
        assert all(f"| {run.line} |" in text or f"| {name} |" in text for name, run in case.runs.items())
    assert report(CASES, {}).count("Not measured.") == len(CASES)


def test_a_peer_that_could_not_run_is_no_empty_line(results: Results) -> None:
    """A peer that could not run is no empty line."""
    results["java"] = dataclasses.replace(results["java"], left_out={"kafka": "no broker"})
    assert "Left out: `kafka`, no broker." in report(CASES, results)


def test_merged_results_name_the_machine_of_each_case(results: Results) -> None:
    """Merged results name the machine of each case."""
    results["java"] = dataclasses.replace(results["java"], machine={"CPU": "another"})
    text = report(CASES, results)
    assert "Cases java:\n\n* CPU: another" in text
    assert "* CPU: made up" in text


def test_the_report_needs_nothing_that_the_file_does_not_hold(results: Results, tmp_path: Path) -> None:
    """The report needs nothing that the file does not hold."""
    merge(tmp_path / "new" / "results.json", results)
    found = load(tmp_path / "new" / "results.json")
    assert report(CASES, found) == report(CASES, results)
    assert found == results


def test_a_run_of_one_case_replaces_that_cases_results_only(results: Results, tmp_path: Path) -> None:
    """The others stay as they were."""
    path = tmp_path / "results.json"
    merge(path, results)
    again = made_up(CASES["web"], rounds=1)
    assert merge(path, {"web": again}) == load(path) == results | {"web": again}


def test_the_prose_around_the_tables_is_kept() -> None:
    """Only what stands between the markers is replaced."""
    document = "a\n<!-- tables:begin -->\n\nold\n\n<!-- tables:end -->\nb\n"
    assert insert(document, "tables", "new") == document.replace("old", "new")
    with pytest.raises(ValueError, match="markers <!-- summary:begin -->"):
        insert(document, "summary", "new")


def test_every_plot_is_drawn(results: Results, tmp_path: Path) -> None:
    """Of complete results six, and none of what was not measured."""
    drawn = draw_all(results, tmp_path)
    assert sorted(drawn) == [
        f"benchmarks-{name}.svg" for name in ("cost", "everyday", "latency", "outage", "threads", "throughput")
    ]
    assert all((tmp_path / name).stat().st_size > 1000 for name in drawn)
    assert draw_all({}, tmp_path) == {}
    assert OUTAGE[0] < OUTAGE[1]
