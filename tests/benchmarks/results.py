"""Keep the measurements in ``.bench/results.json``, from which reports and plots are made."""

import dataclasses
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import Run
from .clients.protocol import Answer
from .watching import Series

#: The default file of the results.
RESULTS = Path(".bench/results.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    answer: Answer
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        return self.answer.delivered / max(self.answer.seconds, 1e-9)

    @property
    def per_cpu_second(self) -> float:
        return self.answer.delivered / max(self.answer.cpu_seconds, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    run: Run
    rounds: list[Measured]
    log_bytes: float
    series: Series = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(one.rate for one in self.rounds)

    @property
    def per_cpu_second(self) -> float:
        """Median of the logs per second of the client's CPU."""
        return statistics.median(one.per_cpu_second for one in self.rounds)

    @property
    def peak_bytes(self) -> int:
        return max(one.answer.peak_bytes for one in self.rounds)

    def quantiles(self, which: str) -> list[float]:
        """Return the quantiles of ``send_seconds`` or ``ack_seconds``, each the median of the rounds; empty if a round
        has none.
        """
        found = [getattr(one.answer, which) for one in self.rounds]
        return [statistics.median(each) for each in zip(*found, strict=True)] if all(found) else []

    def figure(self, name: str) -> float:
        """Return the median of one of the answer's own figures."""
        return statistics.median(one.answer.figures[name] for one in self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The runs of a case that succeeded in all rounds.

    :ivar machine: the machine of the measurement; see :func:`tests.benchmarks.machine.describe`.
    :ivar scale: factor of the number of logs.
    :ivar left_out: reasons why clients or runs are missing, by name.
    """

    id: str
    runs: dict[str, RunResult]
    machine: dict[str, str] = field(default_factory=dict)
    scale: float = 1
    left_out: dict[str, str] = field(default_factory=dict)


Results = dict[str, CaseResult]


def merge(path: Path, found: Results) -> Results:
    """Add results to those of other cases in the file, and return all of them."""
    every = (load(path) if path.exists() else {}) | found
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: dataclasses.asdict(case) for name, case in every.items()}, indent=1)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
    return every


def load(path: Path) -> Results:
    return {name: _case(case) for name, case in json.loads(path.read_text()).items()}


def _case(data: dict[str, Any]) -> CaseResult:
    return CaseResult(**(data | {"runs": {name: _run(run) for name, run in data["runs"].items()}}))


def _run(data: dict[str, Any]) -> RunResult:
    return RunResult(
        run=Run(**data["run"]),
        rounds=[Measured(answer=Answer(**one["answer"]), counts=one["counts"]) for one in data["rounds"]],
        log_bytes=data["log_bytes"],
        series=[(at, resident, cpu, arrived) for at, resident, cpu, arrived in data["series"]],
    )
