"""Define the goals: each is a ratio of two runs, or a bound, and is computed only from the results."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .cases import LATENCY_LINGER_MS, OFFICIAL
from .catalogue import durable_run
from .clients.protocol import QUANTILES
from .results import Measured, Results, RunResult

Metric = Callable[[Measured], float]
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A goal of the benchmark.

    :ivar case: the case with the goal's runs.
    :ivar text: the compared runs, as the table shows them.
    :ivar bound: the minimum, or with ``at_most`` the maximum.
    :ivar figures: returns one figure per round from the results; empty if the runs were not measured.
    :ivar unit: unit of the figures: ``%``, ``ms``, ``MiB``; empty for a ratio.
    """

    case: str
    text: str
    bound: float
    figures: Callable[[Results], list[float]]
    at_most: bool = False
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    goal: Goal
    figures: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.figures)

    @property
    def met(self) -> bool | None:
        if not self.figures:
            return None
        return self.median <= self.goal.bound if self.goal.at_most else self.median >= self.goal.bound


def rate(measured: Measured) -> float:
    return measured.rate


def per_cpu_second(measured: Measured) -> float:
    return measured.per_cpu_second


def cpu_per_log(measured: Measured) -> float:
    """Return the CPU seconds of the client per log."""
    return 1 / measured.per_cpu_second


def live_cpu_per_log(measured: Measured) -> float:
    """Return the CPU of the sender threads per log, for streams that already have a batch."""
    return measured.answer.figures["live_us"]


def cpu_share(measured: Measured) -> float:
    return measured.answer.cpu_seconds / measured.answer.seconds * 100


def catch_up_rate(measured: Measured) -> float:
    """Return the logs per second that arrived after an outage until the client had caught up; 0 if unknown."""
    return measured.answer.figures.get("catch_up_rate", 0)


def cpu_ms_per_request(measured: Measured) -> float:
    """Return the client's CPU per request in milliseconds."""
    return measured.answer.cpu_seconds / max(1, measured.counts["requests"]) * 1000


def peak_mib(measured: Measured) -> float:
    """Return the process's largest resident size in MiB."""
    return measured.answer.peak_bytes / MIB


def milliseconds(which: str, quantile: float) -> Metric:
    """Return a quantile of ``send_seconds`` or ``ack_seconds`` in milliseconds."""
    at = QUANTILES.index(quantile)
    return lambda measured: float(getattr(measured.answer, which)[at]) * 1000


def runs_of(results: Results, case: str, *names: str) -> list[RunResult]:
    """Return the named runs, or nothing if one of them is missing."""
    runs = results[case].runs if case in results else {}
    return [runs[name] for name in names] if all(name in runs for name in names) else []


def ratio(case: str, one: str, other: str, metric: Metric) -> Callable[[Results], list[float]]:
    """Return one run's figure divided by the other's, round by round."""

    def figures(results: Results) -> list[float]:
        runs = runs_of(results, case, one, other)
        rounds = zip(*(run.rounds for run in runs), strict=True)
        return [metric(first) / metric(second) for first, second in rounds if metric(second)]

    return figures


def alone(case: str, run: str, metric: Metric) -> Callable[[Results], list[float]]:
    return lambda results: [metric(one) for found in runs_of(results, case, run) for one in found.rounds]


_STALLED_MIB = 1.25 * 100 + 64
_AGAINST_OFFICIAL = "against `aliyun-log-producer`"


def _at_least(case: str, bound: float, text: str, one: str, other: str, metric: Metric = rate) -> Goal:
    return Goal(case=case, text=text, bound=bound, figures=ratio(case, one, other, metric))


def _throughput() -> Iterator[Goal]:
    for case, bound in (("java", 4), ("web", 7)):
        yield _at_least(case, bound, f"`send` {_AGAINST_OFFICIAL}", "ours: send", OFFICIAL)
    yield _at_least("java", 8, "`send` against `put_logs`", "ours: send", "python_sdk: put_logs")
    yield _at_least(
        "web",
        1.2,
        "`send` with callback against `confluent-kafka` with callback and `orjson`",
        "ours: send_callback",
        "kafka: produce",
    )
    yield _at_least("java", 1.5, "`send` with callback against the Java producer", "ours: send_callback", "java: send")
    for case, bound in (("java", 10), ("web", 12)):
        yield _at_least(case, bound, f"`send_arrow` {_AGAINST_OFFICIAL}", "ours: send_arrow", OFFICIAL)


def _native() -> Iterator[Goal]:
    yield _at_least("threads", 0.95, "`send`, 10 threads against one", "ours: send, 10 threads", "ours: send, 1 thread")
    for shape, bound in (("java", 0.6), ("web", 0.5)):
        text = f"columns encoded and lz4, share of lz4 alone, {shape} shape"
        yield _at_least("encode", bound, text, f"columns_lz4, {shape}", f"lz4, {shape}")
    text = "`send_lines`, encoding and lz4, share of lz4 alone on the same records"
    yield _at_least("encode", 0.6, text, "lines_lz4, lines", "lz4, lines")
    for text, bound, one, other in (
        (f"`send` {_AGAINST_OFFICIAL}", 5, "ours: send", OFFICIAL),
        ("`send_arrow` against the Java producer", 6, "ours: send_arrow", "java: send"),
    ):
        yield _at_least("java", bound, f"logs a CPU second, {text}", one, other, per_cpu_second)


def _durable() -> Iterator[Goal]:
    for mode, label, bounds in (("os", "os", (0.6, 0.6)), (1.0, "1 s", (0.6, 0.6)), ("commit", "commit", (0.3, 0.6))):
        for threads, bound in zip((1, 8), bounds, strict=True):
            text = (
                f"durable `send_many(100)`, share of non-durable, fsync {label}, {threads} thread{'s' * (threads > 1)}"
            )
            yield _at_least("durable", bound, text, durable_run(threads, mode), durable_run(threads, None))


def _at_most() -> Iterator[Goal]:
    yield Goal(
        case="streams",
        text="the sender's CPU for a log: 100,000 live streams against one",
        bound=1.5,
        at_most=True,
        figures=ratio("streams", "ours: send, streams=100,000", "ours: send, streams=1", live_cpu_per_log),
    )
    yield Goal(
        case="small",
        text="CPU of the client for a request of one log",
        bound=0.2,
        at_most=True,
        unit="ms",
        figures=alone("small", "ours: send", cpu_ms_per_request),
    )
    yield Goal(
        case="latency-50k",
        text="p99.9 of a `send()` call at 50,000 logs/s",
        bound=1,
        at_most=True,
        unit="ms",
        figures=alone("latency-50k", "ours: send", milliseconds("send_seconds", 0.999)),
    )
    yield Goal(
        case="latency-50k",
        text="p99 from `send()` to acknowledged at 50,000 logs/s: `linger_ms` and 25 ms",
        bound=LATENCY_LINGER_MS + 25,
        at_most=True,
        unit="ms",
        figures=alone("latency-50k", "ours: send", milliseconds("ack_seconds", 0.99)),
    )
    yield Goal(
        case="work",
        text="CPU for a log: 10,000,000 logs against 100,000",
        bound=1.1,
        at_most=True,
        figures=ratio("work", "ours: send, 10,000,000 logs", "ours: send, 100,000 logs", cpu_per_log),
    )


def _waiting() -> Iterator[Goal]:
    yield _at_least("outage", 1, f"logs/s after an outage, {_AGAINST_OFFICIAL}", "ours: send", OFFICIAL, catch_up_rate)
    yield Goal(
        case="waiting",
        text="peak memory with a stalled server: 1.25 `total_size_in_bytes` + 64 MiB",
        bound=_STALLED_MIB,
        at_most=True,
        unit="MiB",
        figures=alone("waiting", "stalled", peak_mib),
    )
    for run, text, most in (
        ("idle", "idle: share of a core", 0.5),
        ("dead", "1,000 batches for a dead server: share of a core", 0.05),
    ):
        yield Goal(
            case="waiting", text=text, bound=most, at_most=True, unit="%", figures=alone("waiting", run, cpu_share)
        )


#: All goals, in the order of the table.
GOALS = [*_throughput(), *_native(), *_durable(), *_at_most(), *_waiting()]


def verdicts(results: Results) -> list[Verdict]:
    return [Verdict(goal=goal, figures=goal.figures(results)) for goal in GOALS]
