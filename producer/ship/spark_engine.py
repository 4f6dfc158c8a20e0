"""Ships portions as the tasks of a Spark job; only portions and counters pass through the JVM, no lines."""

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

#: The schema of the result of :class:`ShipBatches`, which has no rows.
NOTHING = "nothing int"


def figures_accumulator(context: SparkContext) -> Accumulator[Figures]:
    """Return new counters, to which Spark adds those of each successful task once."""
    return context.accumulator(Figures(), SumParam(Figures))


class ShipPortions:
    """The function of a task: ships its portions; picklable.

    :param figures: accumulator of the counters of completed tasks.
    :param account: accumulator of the outcomes of lines; None if they are not needed.
    """

    def __init__(
        self, job: ShipJob, figures: Accumulator[Figures], account: Accumulator[Account] | None = None
    ) -> None:
        self._job = job
        self._figures = figures
        self._account = account

    def __call__(self, portions: Iterable[bytes]) -> None:
        """Ship serialised portions. The task succeeds even if a portion fails: Spark would send stored lines again."""
        self.ship(portions)

    def ship(self, portions: Iterable[bytes]) -> list[str]:
        """Ship serialised portions. Return the reasons of failed ones."""
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
    """The function of a streaming task, for ``mapInArrow``: each row is a serialised portion; picklable.

    It is in this module because a worker imports the module of the function, and should import no more than it needs.
    """

    def __init__(self, job: ShipJob, figures: Accumulator[Figures]) -> None:
        self._portions = ShipPortions(job, figures)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Ship the portions of all rows. Return no rows.

        :raises DeliveryFailedError: a portion has failed, so the query must not continue after it.
        """
        for reason in self._portions.ship(each for batch in batches for each in batch.column(0).to_pylist()):
            raise DeliveryFailedError(reason)
        return iter(())


@contextmanager
def running_spark(master: str | None, *, query: bool = False) -> Iterator[SparkEngine]:
    """Run Spark in a block.

    :param master: a Spark master URL; None for every core of this machine.
    :param query: True if the block runs a query on its session.
    """
    # A query must fail with its portion; another attempt of the task would send stored lines again.
    with running_context(master=master, query=query) as context:
        yield SparkEngine(context)


class SparkEngine:
    """An engine that ships portions with Spark.

    :param context: the context of Spark.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    @property
    def session(self) -> SparkSession:
        """The session, for SQL."""
        from pyspark.sql import SparkSession  # only queries need it

        return SparkSession.builder.getOrCreate()

    @property
    def parallelism(self) -> int:
        """Number of concurrent tasks, of the executors known so far."""
        return int(self._context.defaultParallelism)

    def start(self, portions: Sequence[Portion], job: ShipJob) -> SparkRun:
        """Start to ship portions, one per task."""
        return SparkRun(self._context, portions, job)


# Maximum attempts of a task: the query for tasks needs a limit.
_MOST_ATTEMPTS = 100
# Numbers of the runs of this process, so that each run has its own job group.
_NUMBERS = itertools.count()


class SparkRun:
    """A Spark job on its own thread, so that the main thread can watch it, and be interrupted.

    :ivar failure: the reason of a failure; None if the run has not failed.
    :ivar doubtful: numbers of portions with an attempt that ended without a report.
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
        """Wait up to ``seconds``. Return True if the run has ended."""
        self._thread.join(seconds)
        if self._figures.value.failed and self._thread.is_alive():  # A failure starts no other portion.
            self.cancel()
        return not self._thread.is_alive()

    def cancel(self) -> None:
        """Cancel the tasks of this run."""
        self._context.cancelJobGroup(self._group)

    @property
    def figures(self) -> Figures:
        """The counters of the completed portions."""
        return self._figures.value

    @property
    def account(self) -> Account:
        """The outcomes of the lines of the completed portions."""
        return self._accounts.value

    @property
    def failed_attempts(self) -> int:
        """Number of failed attempts at portions so far."""
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
        """Note the portions of tasks that died, or were cancelled."""
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
