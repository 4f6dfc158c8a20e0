"""Track whether an agent runs the configuration in its file."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Reloads:
    """The state of reloads, written by the thread that watches the file, and read by any thread.

    :ivar trouble: why the agent does not run the file's configuration, and would not start with it; None if it runs it.
    :ivar succeeded: the time at which the present configuration was read, seconds since the epoch.
    """

    trouble: str | None = None
    succeeded: float = field(default_factory=time.time)

    def failed(self, trouble: str) -> None:
        """Record that the file's configuration cannot run."""
        self.trouble = trouble

    def worked(self) -> bool:
        """Record that the file's configuration runs. Return True if it did not before."""
        recovered, self.trouble = self.trouble is not None, None
        self.succeeded = time.time()
        return recovered
