"""Part: which part of which write a task is."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of which write a task is: the same for every attempt at it.

    :ivar run: the write: a name given by the user, the id of a streaming query, or made up for a batch write.
    :ivar batch: the micro-batch of a streaming query, else an empty string.
    :ivar number: the partition.
    """

    run: str
    batch: str
    number: int

    @property
    def file_name(self) -> str:
        """A name for files of this part."""
        digest = hashlib.sha256(self.run.encode()).hexdigest()[:16]
        batch = f"-batch-{self.batch}" if self.batch else ""
        return f"part-{self.number:05d}{batch}-{digest}"


def part_of_task(run: str | None) -> Part:
    """The part that the running task is.

    :param run: the name of the write; None takes the id of the streaming query, or makes one up.
    """
    context = TaskContext.get()
    if context is None:
        return Part(run or uuid.uuid4().hex, "", 0)
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None:
        return Part(run or uuid.uuid4().hex, "", context.partitionId())
    return Part(run or query, batch or "", context.partitionId())
