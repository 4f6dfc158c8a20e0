"""Write results as Markdown between the markers of two files, and keep the text around the markers.

Plots belong to ``docs/project/benchmarks.md``, goals and tables to ``RESULTS.md`` beside this file.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .cases import Case
from .clients.protocol import QUANTILES
from .goals import MIB, Verdict, cpu_ms_per_request, cpu_share, rate, verdicts
from .results import CaseResult, Results, RunResult

DOCUMENT = Path("docs/project/benchmarks.md")
TABLES = Path("tests/benchmarks/RESULTS.md")
_QUANTILES = [f"p{share * 100:g}" if share < 1 else "max" for share in QUANTILES]

Rows = Iterable[Sequence[str]]


def insert(document: str, name: str, text: str) -> str:
    """Return the document with this text between the markers of that name."""
    first, last = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, begin, rest = document.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the document lacks the markers {first} and {last}")
    return f"{before}{first}\n\n{text}\n\n{last}{after}"


def summary(results: Results, plots: dict[str, str]) -> str:
    """Return the plots and the number of goals that are met."""
    pictures = [f"![{text}]({name})" for name, text in plots.items()]
    found = [verdict.met for verdict in verdicts(results) if verdict.met is not None]
    return "\n\n".join([*pictures, f"Of {len(found)} goals {sum(found)} are met: [`{TABLES}`](../../{TABLES})."])


def report(cases: dict[str, Case], results: Results) -> str:
    """Return the goals, the machine, and a table per case."""
    goals = f"### Goals\n\n{goals_table(verdicts(results))}"
    return "\n\n".join([goals, _machines(results), *(_section(case, results.get(case.id)) for case in cases.values())])


def table(heads: Sequence[str], rows: Rows) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def goals_table(found: list[Verdict]) -> str:
    """Return a row per goal: its bound, median and range of the rounds, and whether it is met."""
    words = {True: "met", False: "**missed**", None: "not measured"}
    return table(
        ("goal", "case", "bound", "measured", ""),
        ((one.goal.text, one.goal.case, _bound(one), _figures(one), words[one.met]) for one in found),
    )


def _bound(verdict: Verdict) -> str:
    goal = verdict.goal
    return f"{'≤' if goal.at_most else '≥'} {_with_unit(goal.bound, goal.unit)}"


def _figures(verdict: Verdict) -> str:
    if not verdict.figures:
        return ""
    unit = verdict.goal.unit
    spread = [_with_unit(edge(verdict.figures), unit) for edge in (min, max)]
    more = f" ({spread[0]} to {spread[1]})" if len(verdict.figures) > 1 else ""
    return _with_unit(verdict.median, unit) + more


def _with_unit(figure: float, unit: str) -> str:
    return f"{f'{figure:.3g}' if figure < 1000 else f'{figure:,.0f}'} {unit}".rstrip()


def _machines(results: Results) -> str:
    """Return the machine, or the machines with their cases if there are several."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for case in results.values():
        groups.setdefault(tuple(case.machine.items()), []).append(case.id)
    lists = [
        (f"Cases {', '.join(ids)}:\n\n" if len(groups) > 1 else "") + "\n".join(f"* {key}: {text}" for key, text in one)
        for one, ids in groups.items()
    ]
    return "### Machine\n\n" + ("\n\n".join(lists) or "Nothing was measured.")


def _section(case: Case, result: CaseResult | None) -> str:
    parts = [f"### `{case.id}`: {case.title}"]
    if case.note:
        parts.append(case.note)
    if result is None or not result.runs:
        parts.append("Not measured.")
    else:
        rounds = max(len(run.rounds) for run in result.runs.values())
        scale = "" if result.scale == 1 else f", at a scale of {result.scale:g}"
        parts.append(f"Medians of {rounds} round{'s' * (rounds > 1)}{scale}.")
        parts.append(_TABLES[case.kind](case, result.runs))
    parts += [f"Left out: `{name}`, {why}." for name, why in (result.left_out if result else {}).items()]
    return "\n\n".join(parts)


def _ratio(run: RunResult, other: RunResult | None) -> str:
    if other is None or len(run.rounds) != len(other.rounds):
        return ""
    ratios = [rate(one) / rate(two) for one, two in zip(run.rounds, other.rounds, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _rate_table(case: Case, runs: dict[str, RunResult]) -> str:
    against = f"rate against {case.against}"
    heads = ["run", "logs/s", "MB/s", "logs per CPU second", "peak MiB", *([against] if case.against else [])]
    rows = []
    for name, run in runs.items():
        row = [name, f"{run.rate:,.0f}", f"{run.rate * run.log_bytes / 1e6:,.0f}", f"{run.per_cpu_second:,.0f}"]
        row.append(f"{run.peak_bytes / MIB:,.0f}")
        against = run.run.against or case.against
        rows.append([*row, *([_ratio(run, runs.get(against))] if against else [])])
    return table(heads, rows)


def _scaling_table(case: Case, runs: dict[str, RunResult]) -> str:
    """Return a row per run, line by line; its ratio is that to the first run of its line."""
    rows = []
    for line in dict.fromkeys(run.run.line for run in runs.values()):
        own = [run for run in runs.values() if run.run.line == line]
        for run in sorted(own, key=lambda run: run.run.x):
            figures = [f"{run.rate:,.0f}", f"{run.rate * run.log_bytes / 1e6:,.1f}", f"{1e6 / run.per_cpu_second:.2f}"]
            rows.append([line, f"{run.run.x:,.0f}", *figures, *_senders(run), _ratio(run, own[0])])
    heads = ["run", case.axis, "logs/s", "MB/s", "CPU, µs a log", "of it the senders", "to live streams"]
    return table([*heads, "rate against the first"], rows)


def _senders(run: RunResult) -> tuple[str, str]:
    """Return the sender threads' CPU in µs per log: of all logs, and without the first log of each stream."""
    names = run.rounds[0].answer.figures
    senders = run.figure("sender_cpu_seconds") / max(1, run.run.count) * 1e6 if "sender_cpu_seconds" in names else None
    live = run.figure("live_us") if "live_us" in names else None
    return "" if senders is None else f"{senders:.2f}", "" if live is None else f"{live:.2f}"


def _latency_table(_case: Case, runs: dict[str, RunResult]) -> str:
    heads = ["run", "until", *(f"{name}, ms" for name in _QUANTILES), "CPU, % of a core"]
    rows = []
    for name, run in runs.items():
        share = f"{statistics.median(map(cpu_share, run.rounds)):.0f}"
        for which, until in (("send_seconds", "the call returns"), ("ack_seconds", "acknowledged")):
            if figures := run.quantiles(which):
                rows.append([name, until, *(f"{each * 1000:,.3f}" for each in figures), share])
    return table(heads, rows)


def _small_table(_case: Case, runs: dict[str, RunResult]) -> str:
    rows = []
    for name, run in runs.items():
        requests = statistics.median(one.counts.get("requests", 0) for one in run.rounds)
        each = statistics.median(map(cpu_ms_per_request, run.rounds))
        late = [f"{seconds * 1000:,.1f}" for seconds in run.quantiles("ack_seconds")[:3:2]] or ["", ""]
        rows.append([name, f"{run.run.count:,}", f"{requests:,.0f}", f"{each:.3f}", *late])
    return table(["run", "logs", "requests", "CPU, ms a request", "acknowledged: p50, ms", "p99, ms"], rows)


def _waiting_table(_case: Case, runs: dict[str, RunResult]) -> str:
    rows = []
    for name, run in runs.items():
        used = f"{statistics.median(map(cpu_share, run.rounds)):.2f}"
        figures = ", ".join(f"{key} {run.figure(key):,.0f}" for key in run.rounds[0].answer.figures)
        rows.append([name, used, f"{run.peak_bytes / MIB:,.0f}", figures])
    return table(["run", "CPU, % of a core", "peak MiB", "figures"], rows)


def _outage_table(_case: Case, runs: dict[str, RunResult]) -> str:
    rows = []
    for name, run in runs.items():
        answer = run.rounds[-1].answer
        delivered = f"{answer.delivered:,} of {run.run.count:,}"
        usage = [f"{answer.seconds:.1f}", f"{answer.cpu_seconds:.1f}", f"{run.peak_bytes / MIB:,.0f}"]
        rows.append([name, delivered, *usage, *_catching_up(answer.figures)])
    heads = ["run", "delivered", "seconds", "CPU seconds", "peak MiB"]
    return table([*heads, "caught up after, s", "logs/s meanwhile", "CPU meanwhile, % of a core"], rows)


def _catching_up(figures: dict[str, float]) -> tuple[str, str, str]:
    if "catch_up_rate" not in figures:
        return "", "", ""
    seconds = figures["catch_up_seconds"]
    share = figures["catch_up_cpu"] / seconds * 100
    return f"{seconds:.2f}", f"{figures['catch_up_rate']:,.0f}", f"{share:.0f}"


_TABLES: dict[str, Callable[[Case, dict[str, RunResult]], str]] = {
    "rate": _rate_table,
    "scaling": _scaling_table,
    "latency": _latency_table,
    "small": _small_table,
    "waiting": _waiting_table,
    "outage": _outage_table,
}
