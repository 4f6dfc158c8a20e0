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

#: Where results are kept, unless it is said otherwise.
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
        """Logs a second of the client's CPU, the median."""
        return statistics.median(one.per_cpu_second for one in self.rounds)

    @property
    def peak_bytes(self) -> int:
        return max(one.answer.peak_bytes for one in self.rounds)

    def quantiles(self, which: str) -> list[float]:
        """Those of ``send_seconds`` or ``ack_seconds``, each the median of the rounds; empty if a round has none."""
        found = [getattr(one.answer, which) for one in self.rounds]
        return [statistics.median(each) for each in zip(*found, strict=True)] if all(found) else []

    def figure(self, name: str) -> float:
        """One of the answer's own figures, the median."""
        return statistics.median(one.answer.figures[name] for one in self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case's runs, those that came through all rounds.

    :ivar machine: where they were measured; see :func:`tests.benchmarks.machine.describe`.
    :ivar scale: how much smaller or larger than usual.
    :ivar left_out: clients or runs that are missing, with the reason.
    """

    id: str
    runs: dict[str, RunResult]
    machine: dict[str, str] = field(default_factory=dict)
    scale: float = 1
    left_out: dict[str, str] = field(default_factory=dict)


Results = dict[str, CaseResult]


def merge(path: Path, found: Results) -> Results:
    """Write results beside those of other cases in the file, and return all of them."""
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
