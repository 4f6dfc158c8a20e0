"""Draw results as SVG; needs the extra ``bench``. The colours are those of Okabe and Ito.

A native client and its pure twin have the same colour; the pure one has hollow marks and dashed lines.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from .cases import OURS, OUTAGE
from .clients.protocol import QUANTILES
from .goals import MIB, cpu_ms_per_request
from .results import Results, RunResult

COLOURS = {
    "ours": "#0072B2",
    "pure": "#0072B2",
    "official": "#D55E00",
    "python_sdk": "#CC79A7",
    "kafka": "#009E73",
    "java": "#E69F00",
    "otlp": "#56B4E9",
}
# Marks that distinguish the ways of one client.
_MARKS = {"send": "o", "send_many": "s", "send_arrow": "^", "send_callback": "D", "produce_bytes": "s"}
_QUANTILES = [f"p{share * 100:g}" if share < 1 else "max" for share in QUANTILES]


def draw_all(results: Results, folder: Path, suffix: str = "svg") -> dict[str, str]:
    prepare()
    drawn = {}
    for name, (text, draw) in _PLOTS.items():
        figure = draw(results)
        if figure is not None:
            file = f"benchmarks-{name}.{suffix}"
            figure.savefig(folder / file, metadata={"Date": None} if suffix == "svg" else None, dpi=110)
            drawn[file] = text
    return drawn


def prepare() -> None:
    """Configure all plots: no display, the same SVG text for the same figures, few lines."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "benchmarks", "font.size": 9, "axes.spines.top": False})
    mpl.rcParams["axes.spines.right"] = False


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """Return a figure of this size in inches, and its axes by row and column."""
    from matplotlib import pyplot

    pyplot.close("all")
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(width, height), layout="constrained", squeeze=False, **options
    )
    return figure, axes


def _style(run: RunResult) -> dict[str, Any]:
    pure = {"linestyle": "--", "markerfacecolor": "white"} if _is_pure(run) else {}
    return {"color": _colour(run), "marker": _MARKS.get(run.run.way, "o"), **pure}


def _colour(run: RunResult) -> str:
    return COLOURS.get(run.run.client, COLOURS["ours"] if run.run.client in OURS else "#000000")


def _is_pure(run: RunResult) -> bool:
    return run.run.client in ("pure", "encoding_pure")


def short(value: float) -> str:
    """Return a number in short form: 26k, 1.2M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def numbers(axis: Any, log: bool = False, steps: tuple[int, ...] = (1,)) -> None:
    """Label the ticks with short numbers; on a logarithmic axis, put them at these multiples of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if log:
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def dots(axis: Any, names: Sequence[str], rows: Mapping[str, tuple[Sequence[float], str, bool]]) -> None:
    """Draw a row per name on a logarithmic axis: a line from minimum to maximum, and a dot and a number at the median.

    :param rows: values, colour, and whether the dot is hollow, by name; names without values are missing.
    """
    for name, (values, colour, is_hollow) in rows.items():
        median, place = statistics.median(values), names.index(name)
        axis.plot([min(values), max(values)], [place] * 2, color=colour, linewidth=2)
        axis.plot(median, place, "o", color=colour, markerfacecolor="white" if is_hollow else colour, markersize=6)
        at = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "fontsize": 7}
        axis.annotate(short(median), (median, place), **at)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    numbers(axis.xaxis, log=True)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(-0.6, len(names) - 0.3)
    axis.grid(axis="both", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)


def throughput(results: Results) -> Any:
    """Draw a panel per shape with a row per participant."""
    shown = [case for case in ("java", "web", "wide", "unicode", "file") if case in results and results[case].runs]
    if not shown:
        return None
    names = list(dict.fromkeys(name for case in shown for name in results[case].runs))[::-1]
    figure, axes = panels(1, len(shown), 2.2 + 1.9 * len(shown), 0.9 + 0.27 * len(names), sharey=True, sharex=True)
    for axis, case in zip(axes[0], shown, strict=True):
        runs = results[case].runs.items()
        rows = {name: ([one.rate for one in run.rounds], _colour(run), _is_pure(run)) for name, run in runs}
        dots(axis, names, rows)
        axis.set_title(case)
    figure.supxlabel("logs a second, one sender thread (median, and range of the rounds)", fontsize=9)
    return figure


def _lines(results: Results, case: str, figure_of: Callable[[RunResult], float], axis: Any) -> bool:
    """Draw each line of runs over ``x``; return whether there is any."""
    runs = list(results[case].runs.values()) if case in results else []
    for line in dict.fromkeys(run.run.line for run in runs):
        own = sorted((run for run in runs if run.run.line == line), key=lambda run: run.run.x)
        xs, ys = [run.run.x for run in own], [figure_of(run) for run in own]
        axis.plot(xs, ys, label=line, markersize=5, **_style(own[0]))
    axis.grid(color="#dddddd", linewidth=0.6)
    return bool(runs)


def threads(results: Results) -> Any:
    """Draw the logs per second by the number of threads."""
    figure, axes = panels(1, 1, 5.4, 3)
    axis = axes[0][0]
    if not _lines(results, "threads", lambda run: run.rate, axis):
        return None
    axis.set(xlabel="sender threads", ylabel="logs a second, all threads", xticks=[1, 2, 4, 10])
    axis.set_ylim(bottom=0)
    numbers(axis.yaxis)
    axis.legend(frameon=False)
    return figure


def latency(results: Results) -> Any:
    """Draw the quantiles of a call and of the time until the acknowledgement, at both rates."""
    shown = [case for case in ("latency-10k", "latency-50k") if case in results and results[case].runs]
    if not shown:
        return None
    figure, axes = panels(len(shown), 2, 7.6, 0.6 + 2.4 * len(shown))
    for row, case in zip(axes, shown, strict=True):
        for axis, which, text in zip(row, ("send_seconds", "ack_seconds"), ("send()", "acknowledged"), strict=True):
            for run in results[case].runs.values():
                values = [seconds * 1000 for seconds in run.quantiles(which)]
                if values:
                    axis.plot(_QUANTILES, values, label=run.run.line, markersize=5, **_style(run))
            axis.set(title=f"{text}, {case.removeprefix('latency-')} logs a second", ylabel="milliseconds")
            if which == "send_seconds":
                axis.set_yscale("log")
                numbers(axis.yaxis, log=True)
            else:
                axis.set_ylim(bottom=0)
            axis.grid(color="#dddddd", linewidth=0.6)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def outage(results: Results) -> Any:
    """Draw memory, CPU and arrivals over time; the time without answers is shaded."""
    runs = [run for run in (results["outage"].runs.values() if "outage" in results else ()) if run.series]
    if not runs:
        return None
    figure, axes = panels(3, 1, 6.4, 6, sharex=True)
    arrived, memory, cpu = (row[0] for row in axes)
    for run in runs:
        look = {"color": _colour(run), "linestyle": "--" if _is_pure(run) else "-"}
        memory.plot([one[0] for one in run.series], [one[1] / MIB for one in run.series], label=run.run.line, **look)
        wide = run.series[::10]  # half a second each, as the kernel counts CPU in hundredths of a second
        for axis, of, whole in (
            (cpu, 2, 0.01),
            (arrived, 3, max(1, run.series[-1][3]) / max(1, run.rounds[-1].answer.delivered)),
        ):
            each = [(two[of] - one[of]) / (two[0] - one[0]) / whole for one, two in pairwise(wide)]
            axis.step([one[0] for one in wide[1:]], each, **look)
    for axis in (arrived, memory, cpu):
        axis.axvspan(*(share * runs[0].run.seconds for share in OUTAGE), color="#eeeeee", zorder=0)
        axis.set_ylim(bottom=0)
    numbers(arrived.yaxis)
    arrived.set_ylabel("logs a second that arrive")
    memory.set_ylabel("resident memory, MiB")
    cpu.set(ylabel="CPU, % of a core", xlabel="seconds; shaded: the server does not answer")
    memory.legend(frameon=False)
    return figure


def everyday(results: Results) -> Any:
    shown = [(text, bars) for text, find in _BARS if (bars := find(results))]
    if not shown:
        return None
    figure, axes = panels(-(-len(shown) // 3), 3, 11, 2.3 * -(-len(shown) // 3))
    for axis in axes.flat[len(shown) :]:
        axis.set_visible(False)
    for axis, (text, bars) in zip(axes.flat, shown, strict=False):
        for place, (_, value, run) in enumerate(reversed(bars)):
            axis.barh(place, value, color="white" if _is_pure(run) else _colour(run), edgecolor=_colour(run))
            axis.annotate(f" {short(value)}", (value, place), va="center", fontsize=8)
        axis.set_yticks(range(len(bars)), [name for name, _, _ in reversed(bars)])
        axis.set_title(text, fontsize=9)
        axis.margins(x=0.2)
        numbers(axis.xaxis)
        axis.locator_params(axis="x", nbins=4)
    return figure


_Bars = list[tuple[str, float, RunResult]]


def _each(case: str, figure_of: Callable[[RunResult], float]) -> Callable[[Results], _Bars]:
    def find(results: Results) -> _Bars:
        runs = results[case].runs if case in results else {}
        return [(name, figure_of(run), run) for name, run in runs.items()]

    return find


def _shares(case: str, pairs: Callable[[dict[str, RunResult]], dict[str, tuple[str, str]]]) -> Callable[..., _Bars]:
    """Draw a bar for each pair of runs of a case: the first one's rate as a share of the second one's."""

    def find(results: Results) -> _Bars:
        runs = results[case].runs if case in results else {}
        named = {name: (one, two) for name, (one, two) in pairs(runs).items() if one in runs and two in runs}
        return [(name, runs[one].rate / runs[two].rate, runs[one]) for name, (one, two) in named.items()]

    return find


def _behind_a_channel(runs: dict[str, RunResult]) -> dict[str, tuple[str, str]]:
    return {name: (name, run.run.against) for name, run in runs.items() if run.run.against not in ("", name)}


def _encoded(_: dict[str, RunResult]) -> dict[str, tuple[str, str]]:
    shapes = (("columns", "java"), ("columns", "web"), ("lines", "lines"))
    return {f"{what}, {shape}": (f"{what}_lz4, {shape}", f"lz4, {shape}") for what, shape in shapes}


def _megabytes(run: RunResult) -> float:
    return run.rate * run.log_bytes / 1e6


def _ms_a_request(run: RunResult) -> float:
    return statistics.median(map(cpu_ms_per_request, run.rounds))


_BARS: tuple[tuple[str, Callable[[Results], _Bars]], ...] = (
    ("kept: logs a second", _each("kept", lambda run: run.rate)),
    ("names: logs a second", _each("names", lambda run: run.rate)),
    ("lines: MB a second of text", _each("lines", _megabytes)),
    ("small: ms of CPU for a request of one log", _each("small", _ms_a_request)),
    ("durable: share of the rate without", _shares("durable", _behind_a_channel)),
    ("encode: with lz4, share of lz4 alone", _shares("encode", _encoded)),
)


def _client_us(run: RunResult) -> float:
    return 1e6 / run.per_cpu_second


def _sender_us(run: RunResult) -> float:
    return run.figure("live_us")


def cost(results: Results) -> Any:
    """Draw the CPU per log by fields, length of the value, and streams."""
    shown = [case for case in ("fields", "length", "streams") if case in results and results[case].runs]
    if not shown:
        return None
    figure, axes = panels(1, len(shown), 0.6 + 2.9 * len(shown), 3.3)
    labels = {
        "fields": "fields of 16 bytes",
        "length": "bytes of the one value",
        "streams": "live streams; CPU of the sender alone",
    }
    for axis, case in zip(axes[0], shown, strict=True):
        _lines(results, case, _sender_us if case == "streams" else _client_us, axis)
        axis.set(xscale="log", yscale="log", xlabel=labels[case])
        numbers(axis.xaxis, log=True)
        numbers(axis.yaxis, log=True, steps=(1, 2, 5))
    axes[0][0].set_ylabel("CPU of the client, µs a log")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


_PLOTS: dict[str, tuple[str, Callable[[Results], Any]]] = {
    "throughput": ("Throughput by shape and client", throughput),
    "everyday": ("What else a user may ask: futures kept, names, lines, small requests, channels", everyday),
    "threads": ("Throughput by the number of sender threads", threads),
    "latency": ("Latency of a call, and until the acknowledgement", latency),
    "outage": ("What arrives, memory and CPU while a server does not answer, and after it", outage),
    "cost": ("CPU for a log by fields, length of the value, and streams", cost),
}
