"""The identity of a task: its part of a write."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

from pyspark import TaskContext


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a write, the same for every attempt at a task.

    :ivar run: the name of the write: the user's, the id of a streaming query, or a random one for a batch.
    :ivar batch: the micro-batch of a streaming query; empty for a batch.
    :ivar number: the partition.
    """

    run: str
    batch: str
    number: int

    @property
    def file_name(self) -> str:
        """The name of this part's files."""
        digest = hashlib.sha256(self.run.encode()).hexdigest()[:16]
        batch = f"-batch-{self.batch}" if self.batch else ""
        return f"part-{self.number:05d}{batch}-{digest}"


def part_of_task(run: str | None) -> Part:
    """Return the part of the running task.

    :param run: the name of the write; None for the id of the streaming query, or a random name.
    """
    context = TaskContext.get()
    if context is None:
        return Part(run or uuid.uuid4().hex, "", 0)
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None:
        return Part(run or uuid.uuid4().hex, "", context.partitionId())
    return Part(run or query, batch or "", context.partitionId())
