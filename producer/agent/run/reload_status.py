"""Reloads: whether an agent runs what its file says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Reloads:
    """Written by whoever reads the file, asked on any thread.

    :ivar trouble: why the agent does not run what its file says, and would not start with it; None if it does.
    :ivar succeeded: when the configuration that runs was read, seconds since the epoch.
    """

    trouble: str | None = None
    succeeded: float = field(default_factory=time.time)

    def failed(self, trouble: str) -> None:
        """The file says something that does not run."""
        self.trouble = trouble

    def worked(self) -> bool:
        """What the file says runs; whether it did not before."""
        mended, self.trouble = self.trouble is not None, None
        self.succeeded = time.time()
        return mended
