"""Ships portions as the tasks of a Spark job. A portion goes to its task, figures come back: no line enters the JVM."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread

from ..spark.accumulators import SumParam
from ..spark.errors import DeliveryFailedError
from ..spark.executor import leased_producer
from .failure import describe
from .figures import Figures
from .job import ShipJob
from .outcome_ledger import Account
from .portions import Portion
from .sending import PortionSender
from .session import running_context

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import SparkSession
    from pyspark.status import SparkStageInfo

#: The columns of what :class:`ShipBatches` returns: no row.
NOTHING = "nothing int"


def figures_accumulator(context: SparkContext) -> Accumulator[Figures]:
    """New figures at zero, which grow as tasks end well; Spark adds nothing of a failed attempt, or of a losing one."""
    return context.accumulator(Figures(), SumParam(Figures))


class ShipPortions:
    """What a task does: it ships its portions; picklable.

    :param figures: grows when the task ends.
    :param account: likewise; None if nobody asks what became of the lines.
    """

    def __init__(
        self, job: ShipJob, figures: Accumulator[Figures], account: Accumulator[Account] | None = None
    ) -> None:
        self._job = job
        self._figures = figures
        self._account = account

    def __call__(self, portions: Iterable[bytes]) -> None:
        """Ship packed portions. The task does not fail where one does: Spark would send again what is stored."""
        self.ship(portions)

    def ship(self, portions: Iterable[bytes]) -> list[str]:
        """Ship packed portions; return why some have failed."""
        failed: list[str] = []
        with leased_producer(self._job.project, config=self._job.config) as producer:
            sender = PortionSender(producer, self._job)
            for packed in portions:
                figures, account = sender.ship(Portion.unpacked(packed))
                failed += figures.failed
                self._figures.add(figures)
                if self._account is not None:
                    self._account.add(account)
        return failed


class ShipBatches:
    """What a task of a streaming query does, by ``mapInArrow``: each row is a packed portion; picklable.

    It stands here so that a worker, which imports where it stands, imports no more than the sending.
    """

    def __init__(self, job: ShipJob, figures: Accumulator[Figures]) -> None:
        self._portions = ShipPortions(job, figures)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Ship the portions of all rows; there is nothing to return.

        :raises DeliveryFailedError: a portion has failed, and the query must not go on behind it.
        """
        for reason in self._portions.ship(each for batch in batches for each in batch.column(0).to_pylist()):
            raise DeliveryFailedError(reason)
        return iter(())


@contextmanager
def running_spark(master: str | None, *, sql: bool = False) -> Iterator[SparkEngine]:
    """Spark for a block.

    :param master: a Spark master URL; every core of this machine if left out.
    :param sql: whether its session is needed.
    """
    # A query has to fail where a portion has; another attempt of its task would send again what is stored.
    with running_context(master=master, sql=sql, one_attempt=sql) as context:
        yield SparkEngine(context)


class SparkEngine:
    """Spark that ships.

    :param context: what it runs in.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    @property
    def session(self) -> SparkSession:
        """The session, for what needs SQL."""
        from pyspark.sql import SparkSession  # few need it

        return SparkSession.builder.getOrCreate()

    @property
    def parallelism(self) -> int:
        """Tasks that run at a time, as far as executors are known."""
        return int(self._context.defaultParallelism)

    def start(self, portions: Sequence[Portion], job: ShipJob) -> SparkRun:
        """Begin to ship portions, a task each."""
        return SparkRun(self._context, portions, job)


# As many attempts of a task as anybody lets Spark make: what is asked of it has to have a bound.
_MOST_ATTEMPTS = 100
# Of the runs of this process, which their jobs are asked for: the attempts of an earlier one are not those of the next.
_NUMBERS = itertools.count()


class SparkRun:
    """A Spark job on a thread of its own, so that the main thread can watch it and be interrupted.

    :ivar failure: why it failed; None if it did not, or has not ended.
    :ivar doubtful: numbers of portions of which an attempt ended without a word.
    """

    def __init__(self, context: SparkContext, portions: Sequence[Portion], job: ShipJob) -> None:
        self.failure: str | None = None
        self._context = context
        self._figures = figures_accumulator(context)
        self._accounts = context.accumulator(Account(), SumParam(Account))
        self.doubtful: set[int] = set()
        self._group = f"loghub-producer-{next(_NUMBERS)}"
        self._thread = InheritableThread(
            target=self._work, args=(portions, job), name="loghub-producer-spark-job", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, for a while; whether it has ended."""
        self._thread.join(seconds)
        if self._figures.value.failed and self._thread.is_alive():  # no other portion is begun
            self.cancel()
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel its tasks."""
        self._context.cancelJobGroup(self._group)

    @property
    def figures(self) -> Figures:
        """Of the portions that have ended."""
        return self._figures.value

    @property
    def account(self) -> Account:
        """What is known of the lines of those."""
        return self._accounts.value

    @property
    def failed_attempts(self) -> int:
        """How many attempts of its tasks have failed so far."""
        return self._deaths + self.figures.failed_attempts

    @property
    def _deaths(self) -> int:
        return sum(stage.numFailedTasks for stage in self._stages())

    def _stages(self) -> Iterator[SparkStageInfo]:
        tracker = self._context.statusTracker()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group))
        stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
        return (stage for stage in stages if stage)

    def _doubt_failed_tasks(self) -> None:
        """Note of which portions a task died, or was cancelled."""
        spark: Any = self._context._jsc.sc()
        spark.listenerBus().waitUntilEmpty()
        for stage in self._stages():
            tasks = spark.statusStore().taskList(stage.stageId, 0, stage.numTasks * _MOST_ATTEMPTS)
            for task in (tasks.apply(number) for number in range(tasks.size())):
                if task.status() != "SUCCESS":
                    self.doubtful.add(int(task.index()))

    def _work(self, portions: Sequence[Portion], job: ShipJob) -> None:
        self._context.setJobGroup(self._group, "ship log files")
        packed: list[Any] = [portion.packed() for portion in portions]
        try:
            ship = ShipPortions(job, self._figures, self._accounts)
            self._context.parallelize(packed, len(packed)).foreachPartition(ship)
        except Exception as error:  # noqa: BLE001  (whatever Spark raises is the job's outcome)
            self.failure = describe(error)
        if self.failure is not None or self._deaths:
            self._doubt_failed_tasks()
        for reason in self.figures.failed[:1]:
            self.failure = reason
