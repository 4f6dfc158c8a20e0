"""Feed: the interface of sources of objects to read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

from .notifications import ObjectRef
from .reader import Outcome

#: Maximum number of objects, or of messages, that are read but not safe in the channels; then reading pauses.
MOST_UNSAFE = 1000


class Task(NamedTuple):
    """Objects that one worker reads.

    :ivar key: identifies the task in its feed.
    """

    key: str
    refs: tuple[ObjectRef, ...]


class Feed(Protocol):
    """Source of tasks. All methods are called on one thread, and raise :class:`S3Error` if a request is refused."""

    def tasks(self, running: Collection[object]) -> Iterator[Task | None]:
        """Yield tasks endlessly; None if no task is available now.

        :param running: the running tasks; at least one worker is idle when the next task is requested.
        """

    def done(self, task: Task, outcome: Outcome) -> None:
        """Record the outcome of a task."""

    def maintain(self) -> None:
        """Acknowledge the objects that are safe, and extend the claims on the others, if it is due."""

    def release(self) -> None:
        """Acknowledge the objects that are safe, and release the others; called when no task is running."""
