"""Ships portions in processes of this machine, without Spark.

Each worker process ships a portion at a time and tells by its pipe what came of it. A portion whose worker died is
given to another one, as often as Spark would. A worker ends with its pipe, so none outlives the command, however that
ends.
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

# A worker that is told to end has nothing left to send, seconds.
_END_SECONDS = 5.0


class LocalEngine:
    """Processes that ship.

    :ivar parallelism: how many of them run at a time.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or _cores()

    def start(self, portions: Sequence[Portion], job: ShipJob) -> LocalRun:
        """Begin to ship portions."""
        return LocalRun(portions, job, self.parallelism)

    def open(self, job: ShipJob) -> LocalRun:
        """Workers that ship portions as they are added, until they are cancelled."""
        return LocalRun([], job, self.parallelism, keep=True)


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


@dataclass(slots=True)
class _Task:
    """A portion, and how many workers have had it."""

    number: int
    packed: bytes
    attempts: int = 0


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, and what it ships; None while it has nothing to do."""

    process: BaseProcess
    pipe: Connection
    task: _Task | None = field(default=None)


class LocalRun:
    """Some portions on their way; whoever waits for the end hands them out.

    :ivar figures: of the portions that have ended.
    :ivar failure: why it failed; None if it did not, or has not ended.
    :ivar account: what is known of the lines.
    :ivar doubtful: numbers of portions of which an attempt ended without a word.
    """

    def __init__(self, portions: Sequence[Portion], job: ShipJob, parallelism: int, *, keep: bool = False) -> None:
        self.figures = Figures()
        self._deaths = 0
        self.failure: str | None = None
        self.account = Account()
        self.doubtful: set[int] = set()
        self._job = job
        self._parallelism = parallelism
        self._keep = keep  # the workers, for portions that are added
        self._forks = _can_fork(portions)
        self._tasks: deque[_Task] = deque()
        self._workers: list[_Worker] = []
        self.add(portions)

    @property
    def failed_attempts(self) -> int:
        """How many attempts at portions have failed so far."""
        return self._deaths + self.figures.failed_attempts

    def add(self, portions: Sequence[Portion]) -> None:
        """Ship more portions, when those before have ended; the account begins anew with them."""
        self.account, self.doubtful = Account(), set()
        self._tasks.extend(_Task(number, portion.packed()) for number, portion in enumerate(portions))
        try:
            for worker in self._workers:
                if worker.task is None:
                    self._hand_out(worker)
            while self._tasks and len(self._workers) < self._parallelism:
                self._hire()
        except BaseException:
            self.cancel()
            raise

    def wait(self, seconds: float) -> bool:
        """Wait for the end, for a while; whether it has ended."""
        busy = {worker.pipe: (worker, worker.task) for worker in self._workers if worker.task is not None}
        for pipe in wait(list(busy), seconds):
            self._hear(*busy[cast("Connection", pipe)])
        # Also of a job that has failed: what is on its way is waited for, so that it is known what became of it.
        if any(worker.task is not None for worker in self._workers):
            return False
        if self.failure is not None:
            self.cancel()  # what its workers have left to send is in doubt, or was refused
        elif not self._keep:
            self._dismiss()
        return True

    def cancel(self) -> None:
        """End the workers at once."""
        self._tasks.clear()
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _hire(self) -> None:
        """Start a worker, with a portion to ship."""
        context = _context(forks=self._forks)
        ours, theirs = context.Pipe()
        inherited = [worker.pipe for worker in self._workers] + [ours] if context.get_start_method() == "fork" else []
        process = context.Process(  # type: ignore[attr-defined]  # each kind of context has it
            target=_work, args=(theirs, self._job, inherited), name="loghub-producer-ship", daemon=True
        )
        with signals.blocked():  # or one would end the worker in its first moments with a trace
            process.start()
        theirs.close()
        self._workers.append(_Worker(process, ours))
        self._hand_out(self._workers[-1])

    def _hand_out(self, worker: _Worker) -> None:
        worker.task = self._tasks.popleft() if self._tasks else None
        if worker.task is not None:
            worker.task.attempts += 1
            with contextlib.suppress(OSError):  # it has died, which its pipe tells next
                worker.pipe.send(worker.task.packed)

    def _hear(self, worker: _Worker, task: _Task) -> None:
        """Take what a worker says of its portion."""
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            said = None
        if said is None:
            self.doubtful.add(task.number)
            self._died(task, _death(worker.process))
            self._workers.remove(worker)
            worker.pipe.close()
            if self._tasks:
                self._hire()
        else:
            figures, account = said
            self.figures += figures
            self.account += account
            for reason in figures.failed:
                self._fail(reason)
            self._hand_out(worker)

    def _died(self, task: _Task, reason: str) -> None:
        self._deaths += 1
        if task.attempts < ATTEMPTS and self.failure is None:
            self._tasks.appendleft(task)
        else:
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        """Begin no other portion."""
        self.failure = self.failure or reason
        self._tasks.clear()

    def _dismiss(self) -> None:
        """Let the workers end."""
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
    return f"a worker process died (exit code {process.exitcode}) while it shipped a portion"


def _can_fork(portions: Sequence[Portion]) -> bool:
    """Whether workers may be forked from this process, which has looked at these files."""
    addresses = (split.file.address for portion in portions for split in portion.splits)
    return not any(address and scheme_of(address) in FORKLESS for address in addresses)


def _context(*, forks: bool) -> BaseContext:
    # A forked worker has all modules already: a spawned one takes longer to start than a small job to run.
    return multiprocessing.get_context("fork" if forks and sys.platform == "linux" else "spawn")


def _work(pipe: Connection, job: ShipJob, inherited: Sequence[Connection]) -> None:
    """What a worker does until its pipe ends.

    :param inherited: the parent's ends of pipes, which would else stay open when the parent has died.
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
            said = sender.ship(Portion.unpacked(packed))
            working.clear()
            pipe.send(said)


def _listen(pipe: Connection, portions: SimpleQueue[Any], working: threading.Event) -> None:
    """Take portions from the pipe; at its end, end, whatever is on its way."""
    while True:
        try:
            portions.put(pipe.recv())
        except (EOFError, OSError):
            if working.is_set():
                os._exit(1)  # the parent is gone, and nobody will hear of this portion
            portions.put(None)
            return
