"""Keep the results of :mod:`.ship` as JSON, and show them as lines, as a table and as a plot."""

import dataclasses
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Minimum MB/s of a case, by Spark or by the local engine; the other goals are ratios or times.
GOALS = {"text": 300.0, "apache": 100.0, "json": 80.0, "regex": 60.0, "multiline": 100.0}
#: Maximum CPU seconds per gigabyte of text.
CPU_GOAL = 5
#: Minimum rate of the case ``gzip``, as a share of that of ``gzip -dc`` on as many cores.
GZIP_GOAL = 0.8
#: Maximum seconds of the whole command on a small file by the local engine.
COLD_GOAL = 1.5
#: The engines with goals. One process is measured only for comparison, like the peers.
_JUDGED = ("spark", "cluster", "local")
#: The engines and peers in the order of the table, with their titles.
TITLES = {
    "spark": "`ship`, Spark's `local[2,4]`",
    "cluster": "`ship`, Spark cluster, 2 workers",
    "local": "`ship`, `local`, two processes",
    "one": "`ship`, `local`, one process",
    "agent": "`producer agent`, taildir → memory → LogHub",
    "official": "a loop with `aliyun-log-producer`",
    "put_logs": "a loop with `put_logs`",
    "flume": "Flume, taildir → memory → null: reads only",
}


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of a run: MB/s of lines without the engine's start, CPU seconds per GB, seconds of the whole command."""

    rate: float
    cpu: float
    seconds: float


Results = dict[tuple[str, str], list[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The results of a whole benchmark of ``ship``.

    :ivar megabytes: megabytes of lines of each file, as on the command line.
    :ivar results: figures of each round, by engine or peer, and case.
    :ivar unzipped: MB/s of ``gzip -dc`` on as many cores as there are files, in each round.
    :ivar left_out: reasons why peers cannot run here, by name.
    :ivar machine: see :func:`tests.benchmarks.machine.describe`.
    """

    megabytes: int
    results: Results = field(default_factory=dict)
    unzipped: list[float] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def decompressed(self) -> float | None:
        return statistics.median(self.unzipped) if self.unzipped else None

    def keep(self, path: Path) -> None:
        runs = [
            {"who": shipper, "case": case, "runs": [dataclasses.asdict(each) for each in some]}
            for (shipper, case), some in self.results.items()
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        path.write_text(json.dumps(values | {"results": runs}, indent=1))


def load(path: Path) -> Measured:
    """Return the results that :meth:`Measured.keep` has written."""
    values = json.loads(path.read_text())
    results = {(one["who"], one["case"]): [Result(**run) for run in one["runs"]] for one in values["results"]}
    return Measured(**(values | {"results": results}))


def medians(results: Results) -> dict[tuple[str, str], Result]:
    """Return the median of each figure over the rounds."""
    return {
        key: Result(*(statistics.median(getattr(each, name) for each in some) for name in ("rate", "cpu", "seconds")))
        for key, some in results.items()
    }


def report(results: Results, decompressed: float | None) -> list[str]:
    """Return a line per case and engine or peer, and the ratios."""
    median = medians(results)
    lines = []
    for (shipper, name), result in median.items():
        goal = _goal(shipper, name)
        verdict = "" if goal is None else f"   goal {goal:g} MB/s: {_verdict(result.rate >= goal)}"
        lines.append(f"{row(shipper, name, result)}{verdict}")
    return [*lines, *_ratios(median, decompressed)]


def _goal(shipper: str, name: str) -> float | None:
    return GOALS.get(name) if shipper in _JUDGED else None


def row(shipper: str, name: str, result: Result) -> str:
    return f"{shipper:8} {name:9} {result.rate:8.1f} MB/s {result.cpu:8.1f} CPU s/GB {result.seconds:6.1f} s"


def _ratios(median: dict[tuple[str, str], Result], decompressed: float | None) -> Iterator[str]:
    def ratio(what: str, value: float, other: float, goal: float) -> str:
        return f"{what}: {value / other:.2f}   goal {goal:g}: {_verdict(value / other >= goal)}"

    text = {shipper: result for (shipper, name), result in median.items() if name == "text"}
    for engine in ("spark", "local"):
        if engine in text and "one" in text:
            yield ratio(f"text, {engine} / twice one process", text[engine].rate, 2 * text["one"].rate, 0.6)
        if engine in text:
            cpu = text[engine].cpu
            yield f"text, {engine}, CPU seconds a GB: {cpu:.1f}   goal {CPU_GOAL}: {_verdict(cpu <= CPU_GOAL)}"
        if (engine, "gzip") in median and decompressed is not None:
            yield ratio(f"gzip, {engine} / gzip -dc", median[engine, "gzip"].rate, decompressed, GZIP_GOAL)
    if {"cluster", "spark"} <= text.keys():
        yield ratio("text, cluster of 2 workers / local[2]", text["cluster"].rate, text["spark"].rate, 0.9)
    if ("local", "cold") in median:
        seconds = median["local", "cold"].seconds
        yield f"cold, local, the whole command: {seconds:.2f} s   goal {COLD_GOAL}: {_verdict(seconds <= COLD_GOAL)}"


def _verdict(met: bool) -> str:
    return "met" if met else "missed"


def table(found: Measured) -> list[str]:
    """Return a Markdown table: a row per engine or peer with its median MB/s (CPU s per GB); missed goals are bold."""
    median, cases = medians(found.results), list(dict.fromkeys(case for _, case in found.results))
    ran = [shipper for shipper in TITLES if any(key[0] == shipper for key in median)]
    goals = {case: rate_goal(case, found.decompressed) for case in cases}
    rows = [["MB/s (CPU s a GB)", *(case if case != "cold" else "5 MB, cold: s" for case in cases)]]
    rows += [
        [TITLES[shipper], *(_cell(shipper, case, median.get((shipper, case)), goals[case]) for case in cases)]
        for shipper in ran
    ]
    rows += [["goal", *(_bound(case, goals[case]) for case in cases)]]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def document(found: Measured) -> str:
    """Return the table, the ratios, the peers left out with the reasons, and the machine."""
    notes = [f"* {line}" for line in _ratios(medians(found.results), found.decompressed)]
    notes += [f"* {TITLES[shipper]} is left out: {reason}" for shipper, reason in found.left_out.items()]
    where = ", ".join([f"{found.megabytes} MB a file", f"{_rounds(found)} rounds", *found.machine.values()])
    return "\n".join([*table(found), "", *notes, "", f"{where}."])


def _rounds(found: Measured) -> int:
    return max(map(len, found.results.values()), default=0)


def _cell(shipper: str, case: str, result: Result | None, goal: float | None) -> str:
    if result is None:
        return ""
    if case == "cold":
        return _bold(f"{result.seconds:.1f}", shipper == "local" and result.seconds > COLD_GOAL)
    rate = _bold(_number(result.rate), shipper in _JUDGED and goal is not None and result.rate < goal)
    if not _shows_cpu(shipper):
        return rate
    return f"{rate} ({_bold(_number(result.cpu), _cpu_missed(shipper, case, result))})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}"


def _bold(text: str, missed: bool) -> str:
    return f"**{text}**" if missed else text


def _cpu_missed(shipper: str, case: str, result: Result) -> bool:
    return case == "text" and shipper in ("spark", "local") and result.cpu > CPU_GOAL


def _shows_cpu(shipper: str) -> bool:
    """Return False for a cluster, whose executors' CPU is not counted."""
    return shipper != "cluster"


def _bound(case: str, goal: float | None) -> str:
    """Return the bounds of a case as text, without the ratios between engines."""
    if case == "cold":
        return f"≤ {COLD_GOAL}"
    cpu = f" (≤ {CPU_GOAL})" if case == "text" else ""
    return "" if goal is None else f"≥ {goal:.0f}{cpu}"


def rate_goal(case: str, decompressed: float | None) -> float | None:
    """Return the minimum MB/s of a case, which for ``gzip`` depends on the rate of ``gzip -dc``."""
    if case == "gzip" and decompressed is not None:
        return GZIP_GOAL * decompressed
    return GOALS.get(case)


def draw(found: Measured, path: Path) -> None:
    """Draw a column per case, rates above and CPU seconds below: median and range of the rounds, goals as dashed lines.

    A cold start is not drawn. The second row of an engine has hollow dots: Spark's cluster, and one local process.
    """
    from .plots import panels, prepare

    prepare()
    results = {key: runs for key, runs in found.results.items() if key[1] != "cold"}
    cases = list(dict.fromkeys(case for _, case in results))
    ran = [shipper for shipper in reversed(TITLES) if any(key[0] == shipper for key in results)]
    figure, axes = panels(2, len(cases), 2.9 + 1.35 * len(cases), 1.2 + 0.46 * len(ran), sharey=True, sharex="row")
    for case, rates, cpu in zip(cases, axes[0], axes[1], strict=True):
        runs = {shipper: results[shipper, case] for shipper in ran if (shipper, case) in results}
        _rows(rates, ran, {shipper: [run.rate for run in some] for shipper, some in runs.items()})
        _rows(cpu, ran, {shipper: [run.cpu for run in some] for shipper, some in runs.items() if _shows_cpu(shipper)})
        rates.set_title(case)
        _mark(rates, rate_goal(case, found.decompressed))
        _mark(cpu, CPU_GOAL if case == "text" else None)
    axes[0][0].set_ylabel("MB/s")
    axes[1][0].set_ylabel("CPU seconds a GB")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _rows(axis: Any, names: list[str], values: dict[str, list[float]]) -> None:
    from .plots import COLOURS, dots

    colours = {"spark": "#56B4E9", "cluster": "#56B4E9", "agent": "#009E73", "flume": COLOURS["java"]}
    colours |= {"official": COLOURS["official"], "put_logs": COLOURS["python_sdk"]}
    ours = COLOURS["ours"]
    titles = {name: TITLES[name].replace("`", "") for name in names}
    rows = {titles[name]: (some, colours.get(name, ours), name in ("cluster", "one")) for name, some in values.items()}
    dots(axis, list(titles.values()), rows)


def _mark(axis: Any, goal: float | None) -> None:
    if goal is not None:
        axis.axvline(goal, color="black", linestyle="--", linewidth=1)
