"""The goals: a ratio of two medians' rounds, or a bound, each found in the results alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from .cases import LATENCY_LINGER_MS, OFFICIAL
from .clients.protocol import QUANTILES
from .results import Measured, Results, RunResult

Metric = Callable[[Measured], float]
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is to be reached.

    :ivar case: the case that it is about.
    :ivar text: what is compared with what.
    :ivar bound: at least so much; at most, if ``at_most``.
    :ivar figures: from the results, one figure a round; empty if it was not measured.
    :ivar unit: of the figures: ``%``, ``ms``, ``MiB``; none if it is a ratio.
    """

    case: str
    text: str
    bound: float
    figures: Callable[[Results], list[float]]
    at_most: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a goal.

    :ivar figures: of the rounds; empty if it was not measured.
    """

    goal: Goal
    figures: list[float]

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.figures)

    @property
    def met(self) -> bool | None:
        """None if it was not measured."""
        if not self.figures:
            return None
        return self.median <= self.goal.bound if self.goal.at_most else self.median >= self.goal.bound


def rate(measured: Measured) -> float:
    """Logs a second."""
    return measured.rate


def per_cpu_second(measured: Measured) -> float:
    """Logs a second of the client's CPU."""
    return measured.per_cpu_second


def cpu_per_log(measured: Measured) -> float:
    """CPU seconds of the client for a log."""
    return 1 / measured.per_cpu_second


def live_cpu_per_log(measured: Measured) -> float:
    """CPU of the sender threads alone for a log, to streams that have a batch already."""
    return measured.answer.figures["live_us"]


def cpu_share(measured: Measured) -> float:
    """Per cent of a core."""
    return measured.answer.cpu_seconds / measured.answer.seconds * 100


def peak_mib(measured: Measured) -> float:
    """The process's largest resident size."""
    return measured.answer.peak_bytes / MIB


def milliseconds(which: str, quantile: float) -> Metric:
    """A quantile of ``send_seconds`` or ``ack_seconds``."""
    at = QUANTILES.index(quantile)
    return lambda measured: float(getattr(measured.answer, which)[at]) * 1000


def runs_of(results: Results, case: str, *names: str) -> list[RunResult]:
    """Those runs; none at all if one is missing."""
    runs = results[case].runs if case in results else {}
    return [runs[name] for name in names] if all(name in runs for name in names) else []


def ratio(case: str, one: str, other: str, metric: Metric) -> Callable[[Results], list[float]]:
    """One run's figure over the other's, round by round."""

    def figures(results: Results) -> list[float]:
        runs = runs_of(results, case, one, other)
        rounds = zip(*(run.rounds for run in runs), strict=True)
        return [metric(first) / metric(second) for first, second in rounds]

    return figures


def ratio_per_byte(case: str, one: str, other: str) -> Callable[[Results], list[float]]:
    """CPU for a byte of names and values: one run's over the other's."""

    def figures(results: Results) -> list[float]:
        runs = runs_of(results, case, one, other)
        sizes = [run.log_bytes for run in runs]
        return [each / sizes[0] * sizes[1] for each in ratio(case, one, other, cpu_per_log)(results)]

    return figures


def alone(case: str, run: str, metric: Metric) -> Callable[[Results], list[float]]:
    """One run's figure."""
    return lambda results: [metric(one) for found in runs_of(results, case, run) for one in found.rounds]


_STALLED_MIB = 1.25 * 100 + 64

GOALS = [
    Goal(
        case="java",
        text="`send`, one thread, against `aliyun-log-producer`",
        bound=3,
        figures=ratio("java", "ours: send", OFFICIAL, rate),
    ),
    Goal(
        case="java",
        text="`send`, one thread, against `put_logs`",
        bound=8,
        figures=ratio("java", "ours: send", "python_sdk: put_logs", rate),
    ),
    Goal(
        case="threads",
        text="`send`, 10 threads, against our own one thread",
        bound=0.9,
        figures=ratio("threads", "ours: send, 10 threads", "ours: send, 1 thread", rate),
    ),
    Goal(
        case="web",
        text="`send` with callback against `confluent-kafka` with callback and `orjson`",
        bound=1,
        figures=ratio("web", "ours: send_callback", "kafka: produce", rate),
    ),
    *(
        Goal(
            case=shape,
            text="`send_many` against our `send`",
            bound=1.5,
            figures=ratio(shape, "ours: send_many", "ours: send", rate),
        )
        for shape in ("java", "web")
    ),
    *(
        Goal(
            case=shape,
            text="`send_arrow` against `aliyun-log-producer`",
            bound=10,
            figures=ratio(shape, "ours: send_arrow", OFFICIAL, rate),
        )
        for shape in ("java", "web")
    ),
    *(
        Goal(
            case="encode",
            text=f"columns encoded and compressed against lz4 alone, {shape} shape",
            bound=0.35,
            figures=ratio("encode", f"columns_lz4, {shape}", f"lz4, {shape}", rate),
        )
        for shape in ("java", "web")
    ),
    *(
        Goal(
            case="cost",
            text=f"CPU for a byte against the access log: {name}",
            bound=2,
            at_most=True,
            figures=ratio_per_byte("cost", name, "web"),
        )
        for name in ("wide", "unicode", "web, 50 streams")
    ),
    Goal(
        case="java",
        text="logs a CPU second, `send` against `aliyun-log-producer`",
        bound=3,
        figures=ratio("java", "ours: send", OFFICIAL, per_cpu_second),
    ),
    Goal(
        case="java",
        text="logs a CPU second, `send_many` against the Java producer",
        bound=1,
        figures=ratio("java", "ours: send_many", "java: send", per_cpu_second),
    ),
    Goal(
        case="java",
        text="logs a CPU second, `send_arrow` against the Java producer",
        bound=5,
        figures=ratio("java", "ours: send_arrow", "java: send", per_cpu_second),
    ),
    Goal(
        case="latency-50k",
        text="p99.9 of a `send()` call at 50,000 logs/s",
        bound=1,
        at_most=True,
        unit="ms",
        figures=alone("latency-50k", "ours: send", milliseconds("send_seconds", 0.999)),
    ),
    Goal(
        case="latency-50k",
        text="p99 from `send()` to acknowledged at 50,000 logs/s: `linger_ms` and 25 ms",
        bound=LATENCY_LINGER_MS + 25,
        at_most=True,
        unit="ms",
        figures=alone("latency-50k", "ours: send", milliseconds("ack_seconds", 0.99)),
    ),
    Goal(
        case="waiting",
        text="peak memory with a stalled server: 1.25 `total_size_in_bytes` + 64 MiB",
        bound=_STALLED_MIB,
        at_most=True,
        unit="MiB",
        figures=alone("waiting", "stalled", peak_mib),
    ),
    *(
        Goal(case="waiting", text=text, bound=0.5, at_most=True, unit="%", figures=alone("waiting", run, cpu_share))
        for run, text in (
            ("idle", "idle: share of a core"),
            ("dead", "1,000 batches for a dead server: share of a core"),
        )
    ),
    Goal(
        case="work",
        text="CPU for a log: 10,000,000 logs against 100,000",
        bound=1.1,
        at_most=True,
        figures=ratio("work", "ours: send, 10,000,000 logs", "ours: send, 100,000 logs", cpu_per_log),
    ),
    Goal(
        case="streams",
        text="the sender's CPU for a log: 100,000 live streams against one",
        bound=2,
        at_most=True,
        figures=ratio("streams", "ours: send, streams=100,000", "ours: send, streams=1", live_cpu_per_log),
    ),
]


def verdicts(results: Results) -> list[Verdict]:
    """What came of each goal."""
    return [Verdict(goal=goal, figures=goal.figures(results)) for goal in GOALS]
