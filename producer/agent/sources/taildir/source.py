"""TaildirSource: the source that the agent runs."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection

from ....runtime.backoff import Backoff
from ....runtime.clock import Clock, Stop
from ...events.batch import EventBatch
from ...events.interfaces import Context, Lag, Outlet
from .follower import Follower
from .options import TaildirOptions

#: Seconds between two scans while nothing is written: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


class TaildirSource:
    """Source of the lines of log files, which grow and are rotated. Modelled on Flume's ``TaildirSource``."""

    endless = True

    @staticmethod
    def notes(options: TaildirOptions, _given: Collection[str]) -> list[str]:
        """Return a note for each glob that matches no file: it may be wrong, or the file may come later."""
        paths = [os.path.abspath(os.path.expanduser(text)) for text in options.paths if "**" not in text]
        missing = [path for path in paths if next(glob.iglob(path), None) is None]
        return [f"no file matches {path} yet" for path in missing]

    @staticmethod
    def decode_sample(options: TaildirOptions, data: bytes, _clock: Clock) -> EventBatch:
        """Return the events of a file's content, without headers that its path decides."""
        return options.batch_maker().sample(data, options.encoding)

    Options = TaildirOptions

    def __init__(self, options: TaildirOptions, context: Context) -> None:
        self._options, self._context = options, context
        self._follower: Follower | None = None

    def run(self, outlet: Outlet, stop: Stop) -> None:
        self._follower = follower = Follower(self._options, self._context, outlet, stop)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            while not stop.is_set():
                if follower.look():
                    backoff.reset()
                else:
                    stop.wait(backoff.next_pause())
        finally:
            follower.close()

    def lag(self) -> Lag:
        return Lag(bytes=0, seconds=0.0) if self._follower is None else self._follower.lag()
