"""Ships portions in processes of this machine, without Spark.

Each worker process ships one portion at a time, and reports the outcome through a pipe. A portion whose worker died is
given to another one, as often as Spark would. A worker ends when its pipe is closed, so no worker outlives the command.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, cast

from ..client.producer import Producer
from ..runtime import signals
from .figures import Figures
from .files.remote.address import FORKLESS, scheme_of
from .job import ShipJob
from .outcome_ledger import Account
from .portions import Portion
from .sending import ATTEMPTS, PortionSender

# Time for idle workers to end before they are killed, seconds.
_END_SECONDS = 5.0


class LocalEngine:
    """Worker processes that ship portions.

    :ivar parallelism: number of workers.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or _cores()

    def start(self, portions: Sequence[Portion], job: ShipJob) -> LocalRun:
        """Start to ship portions."""
        return LocalRun(portions, job, self.parallelism)

    def open(self, job: ShipJob) -> LocalRun:
        """Start a run that ships portions as they are added, until it is cancelled."""
        return LocalRun([], job, self.parallelism, keep=True)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@dataclass(slots=True)
class _Task:
    """A portion, with the number of attempts."""

    number: int
    packed: bytes
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process, and the portion that it ships; None while it is idle."""

    process: BaseProcess
    pipe: Connection
    task: _Task | None = field(default=None)


class LocalRun:
    """A run of portions; the caller of :meth:`wait` assigns them to the workers.

    :ivar figures: counters of the completed portions.
    :ivar failure: the reason of a failure; None if the run has not failed.
    :ivar account: the outcome of the lines.
    :ivar doubtful: numbers of portions whose worker died without a report.
    """

    def __init__(self, portions: Sequence[Portion], job: ShipJob, parallelism: int, *, keep: bool = False) -> None:
        self.figures = Figures()
        self._deaths = 0
        self.failure: str | None = None
        self.account = Account()
        self.doubtful: set[int] = set()
        self._job = job
        self._parallelism = parallelism
        self._keep = keep  # True to keep idle workers for portions that are added later.
        self._forks = _can_fork(portions)
        self._tasks: deque[_Task] = deque()
        self._workers: list[_Worker] = []
        self.add(portions)

    @property
    def failed_attempts(self) -> int:
        """Number of failed attempts at portions so far."""
        return self._deaths + self.figures.failed_attempts

    def add(self, portions: Sequence[Portion]) -> None:
        """Ship more portions, after all earlier ones are complete; the account starts empty again."""
        self.account, self.doubtful = Account(), set()
        self._tasks.extend(_Task(number, portion.packed()) for number, portion in enumerate(portions))
        try:
            for worker in self._workers:
                if worker.task is None:
                    self._assign(worker)
            while self._tasks and len(self._workers) < self._parallelism:
                self._start_worker()
        except BaseException:
            self.cancel()
            raise

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``. Return True if the run has ended."""
        busy = {worker.pipe: (worker, worker.task) for worker in self._workers if worker.task is not None}
        for pipe in wait(list(busy), seconds):
            self._receive(*busy[cast("Connection", pipe)])
        # Even after a failure, wait for running portions, so that the outcome of their lines is known.
        if any(worker.task is not None for worker in self._workers):
            return False
        if self.failure is not None:
            self.cancel()  # The records that the workers still hold are in doubt, or were rejected.
        elif not self._keep:
            self._end_workers()
        return True

    def cancel(self) -> None:
        """Kill the workers."""
        self._tasks.clear()
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _start_worker(self) -> None:
        """Start a worker with a portion."""
        context = _context(forks=self._forks)
        ours, theirs = context.Pipe()
        inherited = [worker.pipe for worker in self._workers] + [ours] if context.get_start_method() == "fork" else []
        process = context.Process(  # type: ignore[attr-defined]  # each kind of context has it
            target=_work, args=(theirs, self._job, inherited), name="loghub-producer-ship", daemon=True
        )
        with signals.blocked():  # A signal in its first moments would end the worker with a traceback.
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        self._assign(self._workers[-1])

    def _assign(self, worker: _Worker) -> None:
        worker.task = self._tasks.popleft() if self._tasks else None
        if worker.task is not None:
            worker.task.attempts += 1
            with contextlib.suppress(OSError):  # The worker has died; the end of its pipe reports that next.
                worker.pipe.send(worker.task.packed)

    def _receive(self, worker: _Worker, task: _Task) -> None:
        """Handle the report of a worker, or its death."""
        try:
            report = worker.pipe.recv()
        except (EOFError, OSError):
            report = None
        if report is None:
            self.doubtful.add(task.number)
            self._died(task, _death(worker.process))
            self._workers.remove(worker)
            worker.pipe.close()
            if self._tasks:
                self._start_worker()
        else:
            figures, account = report
            self.figures += figures
            self.account += account
            for reason in figures.failed:
                self._fail(reason)
            self._assign(worker)

    def _died(self, task: _Task, reason: str) -> None:
        self._deaths += 1
        if task.attempts < ATTEMPTS and self.failure is None:
            self._tasks.appendleft(task)
        else:
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Fail the run, so that no other portion is started."""
        self.failure = self.failure or reason
        self._tasks.clear()

    def _end_workers(self) -> None:
        """End the workers when they are idle."""
        for worker in self._workers:
            worker.pipe.close()
        for worker in self._workers:
            worker.process.join(_END_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()


def _death(process: BaseProcess) -> str:
    process.join()
    return f"a worker process died with exit code {process.exitcode} while it shipped a portion"


def _can_fork(portions: Sequence[Portion]) -> bool:
    """Return True if workers may be forked: no package used so far fails in a fork."""
    addresses = (split.file.address for portion in portions for split in portion.splits)
    return not any(address and scheme_of(address) in FORKLESS for address in addresses)


def _context(*, forks: bool) -> BaseContext:
    # A forked worker has all modules loaded; a spawned one takes longer to start than a small job takes.
    return multiprocessing.get_context("fork" if forks and sys.platform == "linux" else "spawn")


def _work(pipe: Connection, job: ShipJob, inherited: Sequence[Connection]) -> None:
    """Ship portions in a worker until its pipe is closed.

    :param inherited: the parent's ends of pipes, which would otherwise stay open after the parent has died.
    """
    for other in inherited:
        other.close()
    signals.ignore_stops()
    portions: SimpleQueue[bytes | None] = SimpleQueue()
    working = threading.Event()
    threading.Thread(target=_listen, args=(pipe, portions, working), name="loghub-ship-pipe", daemon=True).start()
    with Producer(job.project, config=job.config) as producer:
        producer._losses.mute()
        sender = PortionSender(producer, job)
        while (packed := portions.get()) is not None:
            working.set()
            report = sender.ship(Portion.unpacked(packed))
            working.clear()
            pipe.send(report)


def _listen(pipe: Connection, portions: SimpleQueue[Any], working: threading.Event) -> None:
    """Receive portions from the pipe. When it is closed, end the process, even while it ships a portion."""
    while True:
        try:
            portions.put(pipe.recv())
        except (EOFError, OSError):
            if working.is_set():
                os._exit(1)  # The parent has died, so the report of this portion would be lost.
            portions.put(None)
            return
