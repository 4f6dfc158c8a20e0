"""Measure a case: its participants send by turns, A B C A B C …, and the arrived logs are checked."""

import functools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from .cases import OURS, OUTAGE, WAITING, Case, Run
from .clients.protocol import Job
from .participants import Participants
from .peers import Client
from .results import CaseResult, Measured, RunResult
from .samples import check
from .server import progress, set_mode, take_counts
from .shapes import logs_of, size_of
from .watching import Series, Watch, recovery

# The share of a run's logs that is sent before the first round. Java gets all of them, as it compiles while it runs.
_WARM_UP, _WARM_UP_OF_JAVA = 0.1, 1


def measure(case: Case, participants: Participants, rounds: int, left_out: dict[str, str]) -> CaseResult:
    table = _Table(case, participants, left_out)
    if case.most_rounds > 1:
        table.warm_up()
    for _ in range(min(rounds, case.most_rounds)):
        table.round()
    return CaseResult(id=case.id, runs=table.done, left_out=table.left_out)


class _Table:
    """A case that is being measured: the completed runs, and why others are left out."""

    def __init__(self, case: Case, participants: Participants, left_out: dict[str, str]) -> None:
        self._case, self._participants = case, participants
        clients = {run.client for run in case.runs.values()}
        self.left_out = {name: why for name, why in left_out.items() if name in clients}
        self.done: dict[str, RunResult] = {}

    def warm_up(self) -> None:
        """Run each participant once at a smaller size, and discard the results."""
        for name, run in self._left():
            self._try(name, run.scaled(_WARM_UP_OF_JAVA if run.client == "java" else _WARM_UP))
        self.done.clear()

    def round(self) -> None:
        for name, run in self._left():
            measured, series = self._try(name, run) or (None, [])
            if measured is not None:
                earlier = self.done[name].rounds if name in self.done else []
                self.done[name] = RunResult(
                    run=run, rounds=[*earlier, measured], log_bytes=_log_bytes(run.shape), series=series
                )

    def _left(self) -> Iterator[tuple[str, Run]]:
        for name, run in self._case.runs.items():
            if name not in self.left_out and run.client not in self.left_out:
                yield name, run

    def _try(self, name: str, run: Run) -> tuple[Measured, Series] | None:
        """Do a run; if it fails, leave out a peer's run from now on, or raise the error of ours."""
        try:
            measured, series = self._run(name, run)
        except Exception as error:
            if run.client in OURS:
                raise
            _say(f"  {name}: {error}")
            self.left_out[name] = (str(error) or type(error).__name__).splitlines()[-1]  # often the last line of stderr
            self.done.pop(name, None)
            return None
        _say(f"  {name}: {measured.rate:,.0f} logs/s, {measured.answer.cpu_seconds:.2f} s of CPU")
        return measured, series

    def _run(self, name: str, run: Run) -> tuple[Measured, Series]:
        client = self._participants.client(run.client if self._case.one_process else name, run)
        job = _job(run, self._participants.address(run))
        found = sorted((self._once(client, run, job) for _ in range(run.repeat)), key=lambda one: one[0].answer.seconds)
        return found[len(found) // 2]

    def _once(self, client: Client, run: Run, job: Job) -> tuple[Measured, Series]:
        port, outage = self._participants.port, self._case.kind == "outage"
        take_counts(port)
        trouble = _outage(port, run.seconds) if outage else _stall(port) if run.way == "stalled" else nullcontext()
        arrived = functools.partial(progress, port) if outage else float
        with trouble, Watch(client.pid, arrived) as watch:
            answer = client.run(job)
        if outage:
            begin, end = (share * run.seconds for share in OUTAGE)
            answer.figures.update(recovery(watch.series, (begin, end), run.rate, run.count))
        counts = take_counts(port)
        if run.way not in WAITING:
            check(run, answer, counts, complete=not outage)
        numbers = {name: value for name, value in counts.items() if isinstance(value, int)}
        return Measured(answer=answer, counts=numbers), watch.series if outage else []


def _job(run: Run, address: str) -> Job:
    options = run.options | ({"seconds": run.seconds} if run.way in WAITING else {})
    return Job(
        way=run.way,
        shape=run.shape,
        count=run.count,
        address=address,
        threads=run.threads,
        streams=run.streams,
        rate=run.rate,
        options=options,
    )


@contextmanager
def _stall(port: int) -> Iterator[None]:
    set_mode(port, "stall")
    try:
        yield
    finally:
        set_mode(port, "ok")


@contextmanager
def _outage(port: int, seconds: float) -> Iterator[None]:
    """Let the server answer no request in the part of the run that :data:`OUTAGE` defines."""
    # One thread begins and ends the outage: of two timers, the second could run first on a busy machine, and the server
    # would stall forever.
    trouble = threading.Thread(target=_stall_between, args=(port, seconds))
    trouble.start()
    try:
        yield
    finally:
        trouble.join()


def _stall_between(port: int, seconds: float) -> None:
    begin, end = (share * seconds for share in OUTAGE)
    time.sleep(begin)
    with _stall(port):
        time.sleep(end - begin)


def _log_bytes(shape: str) -> float:
    logs = logs_of(shape)
    return sum(map(size_of, logs)) / len(logs)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
