"""Feed: where the objects to read come from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from .notifications import ObjectRef
from .reader import Outcome

#: Maximum number of objects, or messages, that were read and are not safe yet; at this limit reading pauses.
MOST_UNSAFE = 1000


class Task(NamedTuple):
    """Objects that one worker reads.

    :ivar key: identifies the task in its feed.
    """

    key: str
    refs: tuple[ObjectRef, ...]


class Feed(Protocol):
    """Source of tasks; all methods are called on one thread.

    :raises S3Error: by each method, if S3 or SQS refuses a request.
    """

    def tasks(self, running: Collection[object]) -> Iterator[Task | None]:
        """Yield tasks without an end; None if there is none at this moment.

        :param running: the tasks that are running, fewer than workers when the next task is asked for.
        """

    def done(self, task: Task, outcome: Outcome) -> None:
        """Take the outcome of a task."""

    def keep(self) -> None:
        """Do what is due: acknowledge what is safe, keep what is not."""

    def end(self) -> None:
        """Release what was not read, once no task is running."""
