"""Results are stored, merged, judged and shown unchanged."""

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
def test_a_run_of_ours_uses_our_program(case: str) -> None:
    """A run of ours uses our program, even if another program's runs have its title, such as the integrations'."""
    clients = {run.line: run.client for run in CASES[case].runs.values()}
    assert (clients["ours: send"], clients["ours, pure: send"]) == ("ours", "pure")


def made_up(case: Case, rounds: int = 3, seconds: float = 1) -> CaseResult:
    """Return results of a case in which every run takes ``seconds`` for 1,000 logs."""
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
    """Return the results with other values in the answers of one run."""
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


def test_every_goal_finds_one_figure_per_round_in_complete_results(results: Results) -> None:
    """Every goal finds one figure per round in complete results."""
    assert [len(verdict.figures) for verdict in verdicts(results)] == [3] * len(GOALS)


@pytest.mark.parametrize(("seconds", "reached"), [(0.251, False), (0.249, True)])
def test_a_goal_is_met_at_four_times_the_rate_and_missed_slightly_below(
    results: Results, seconds: float, reached: bool
) -> None:
    """A goal is met at four times the rate and missed slightly below, as the table shows with the figure."""
    found = changed(results, "java", "ours: send", seconds=seconds)
    text = "`send` against `aliyun-log-producer`"
    assert met(found, text) == [reached, False]  # the second verdict is that of the shape ``web``
    (line,) = (line for line in goals_table(verdicts(found)).splitlines() if f"| {text} | java" in line)
    assert line.endswith("| met |" if reached else "| **missed** |")
    assert f"| {1 / seconds:.3g} (" in line


@pytest.mark.parametrize(("milliseconds", "reached"), [(24.9, True), (25.1, False)])
def test_the_goal_of_the_p99_is_missed_above_25_ms_over_the_linger(
    results: Results, milliseconds: float, reached: bool
) -> None:
    """The goal of the p99 until the acknowledgement is missed if it is more than 25 ms above the linger."""
    p99 = (LATENCY_LINGER_MS + milliseconds) / 1000
    found = changed(results, "latency-50k", "ours: send", ack_seconds=[0.1, 0.1, p99, 1.0, 1.0])
    assert met(found, "p99 from `send()`") == [reached]


@pytest.mark.parametrize(("seconds", "reached"), [(0.0021, False), (0.0019, True)])
def test_the_cpu_per_request_is_computed_from_the_requests_that_arrived(
    results: Results, seconds: float, reached: bool
) -> None:
    """The CPU per request is computed from the requests that arrived: ten may take 2 ms in all."""
    found = changed(results, "small", "ours: send", cpu_seconds=seconds)
    assert met(found, "CPU of the client for a request of one log") == [reached]


def test_a_durable_run_is_compared_with_the_run_without_a_channel_on_as_many_threads(results: Results) -> None:
    """A durable run is compared with the run without a channel that has as many threads."""
    found = changed(results, "durable", "8 threads, no channel", seconds=0.5)
    text = "durable `send_many(100)`, share of non-durable, fsync os, "
    assert met(found, f"{text}1 thread") == [True]
    assert met(found, f"{text}8 threads") == [False]
    assert "| 8 threads, fsync os | 1,000 | 0 | 1,000,000 | 1 | 0.50 (0.50 to 0.50) |" in report(CASES, found)


def test_the_goal_of_catching_up_has_no_verdict_without_samples(results: Results) -> None:
    """The goal of catching up has no verdict if there are no samples of it."""
    found = changed(results, "outage", "official: send", figures={})
    assert met(found, "logs/s after an outage") == [None]


def test_the_median_decides_and_one_slow_round_is_shown(results: Results) -> None:
    """The median decides: one slow round of three is shown, and the goal is still met."""
    run = results["work"].runs["ours: send, 10,000,000 logs"]
    slow = dataclasses.replace(run.rounds[0], answer=dataclasses.replace(run.rounds[0].answer, cpu_seconds=1.0))
    run.rounds[1:] = [run.rounds[0], slow]
    (verdict,) = (one for one in verdicts(results) if one.goal.case == "work")
    assert verdict.met
    assert "| 1 (1 to 1,000) |" in goals_table([verdict])


def test_without_results_no_goal_is_met_or_missed() -> None:
    """Without results, no goal is met or missed."""
    assert {verdict.met for verdict in verdicts({})} == {None}
    assert "not measured" in goals_table(verdicts({}))


def test_the_report_contains_every_case_or_says_that_it_was_not_measured(results: Results) -> None:
    """The report contains every case with a row per run, or says that it was not measured."""
    text = report(CASES, results)
    for case in CASES.values():
        assert f"### `{case.id}`: {case.title}" in text
        assert all(f"| {run.line} |" in text or f"| {name} |" in text for name, run in case.runs.items())
    assert report(CASES, {}).count("Not measured.") == len(CASES)


def test_a_peer_that_could_not_run_is_named_with_the_reason(results: Results) -> None:
    """A peer that could not run is named with the reason."""
    results["java"] = dataclasses.replace(results["java"], left_out={"kafka": "no broker"})
    assert "Left out: `kafka`, no broker." in report(CASES, results)


def test_merged_results_name_the_machine_of_each_case(results: Results) -> None:
    """Merged results name the machine of each case."""
    results["java"] = dataclasses.replace(results["java"], machine={"CPU": "another"})
    text = report(CASES, results)
    assert "Cases java:\n\n* CPU: another" in text
    assert "* CPU: made up" in text


def test_a_report_from_stored_results_equals_that_from_the_results_themselves(results: Results, tmp_path: Path) -> None:
    """A report from stored results equals the report from the results themselves."""
    merge(tmp_path / "new" / "results.json", results)
    found = load(tmp_path / "new" / "results.json")
    assert report(CASES, found) == report(CASES, results)
    assert found == results


def test_a_run_of_one_case_replaces_only_its_results(results: Results, tmp_path: Path) -> None:
    """A run of one case replaces only the results of that case."""
    path = tmp_path / "results.json"
    merge(path, results)
    again = made_up(CASES["web"], rounds=1)
    assert merge(path, {"web": again}) == load(path) == results | {"web": again}


def test_only_the_text_between_the_markers_is_replaced() -> None:
    """Only the text between the markers is replaced."""
    document = "a\n<!-- tables:begin -->\n\nold\n\n<!-- tables:end -->\nb\n"
    assert insert(document, "tables", "new") == document.replace("old", "new")
    with pytest.raises(ValueError, match="markers <!-- summary:begin -->"):
        insert(document, "summary", "new")


def test_six_plots_are_drawn_from_complete_results_and_none_without(results: Results, tmp_path: Path) -> None:
    """Six plots are drawn from complete results, and none without results."""
    drawn = draw_all(results, tmp_path)
    assert sorted(drawn) == [
        f"benchmarks-{name}.svg" for name in ("cost", "everyday", "latency", "outage", "threads", "throughput")
    ]
    assert all((tmp_path / name).stat().st_size > 1000 for name in drawn)
    assert draw_all({}, tmp_path) == {}
    assert OUTAGE[0] < OUTAGE[1]
