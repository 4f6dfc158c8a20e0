"""What a fork means to channels in memory: in the child they are empty, and have locks that nobody holds."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A channel that a fork concerns."""

    def renew_in_child(self) -> None:
        """Start empty; called in the child, in its only thread. Takes no lock that existed before."""


_channels: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch_fork(channel: Forkable) -> None:
    """Tell ``channel`` about forks, as long as it lives."""
    _channels.add(channel)


def _after_fork_in_child() -> None:
    for channel in list(_channels):
        channel.renew_in_child()


# Hooks run in the order of their registration, and the package imports its channels before anything else: when the
# hook of the producers runs, the channels under them are ready.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
