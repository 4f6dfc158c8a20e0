"""Keeper: a thread that does the regular work of a channel: syncs, checkpoints, and the adoption of orphans."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ...model.errors import ChannelClosedError, ChannelError
from ...runtime.clock import Clock, Deadline, Latch, Signal
from ...runtime.loggers import get_logger

_log = get_logger("loghub.channel")


class Work(NamedTuple):
    """Regular work of a channel.

    :ivar noun: its name in messages.
    :ivar do: does it for a channel.
    """

    noun: str
    do: Callable[[Any], object]


class Keeper:
    """A thread that does the work of one channel at intervals.

    It holds a weak reference to the channel: the thread ends if the channel is dropped without ``close``.

    :param channel: the channel, which has a ``name``.
    :param work: seconds between two times of each work; None for a single time. Without any no thread is started.
    :param at_once: True to do each work at the start, too.
    """

    def __init__(
        self, channel: Any, clock: Clock, work: Mapping[Work, float | None], *, name: str, at_once: bool = False
    ) -> None:
        self._channel = weakref.ref(channel, self._dropped)
        self._clock, self._work, self._at_once = clock, work, at_once
        self._wake = Signal()
        self._stop = Latch()
        self._hurried: Work | None = None
        self._thread = threading.Thread(target=self._run, name=f"{channel.name}-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is any work."""
        if self._work:
            self._thread.start()

    def hurry(self, work: Work) -> None:
        """Request work before its interval ends. No effect without a thread."""
        if self._hurried is None and self._thread.is_alive():
            self._hurried = work
            self._wake.set()

    def stop(self) -> None:
        """Start no further work, and wait for the work in progress."""
        self._dropped(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _dropped(self, _: object) -> None:
        self._stop.set()
        self._wake.set()

    def _run(self) -> None:
        periods = {work: math.inf if period is None else period for work, period in self._work.items()}
        now = self._clock.monotonic()
        times = {work: now if self._at_once else now + period for work, period in periods.items()}
        while not self._stop.is_set() and min(times.values()) < math.inf:
            self._clock.wait_for(self._wake, Deadline(min(times.values())))
            channel = self._channel()
            if self._stop.is_set() or channel is None:
                return
            if self._hurried is not None:
                hurried, self._hurried = self._hurried, None  # before the work: a request during it needs another one
                self.do(hurried, channel)
            for work, period in periods.items():
                if self._clock.monotonic() >= times[work]:
                    self.do(work, channel)
                    times[work] = self._clock.monotonic() + period
            del channel

    def do(self, work: Work, channel: Any) -> None:
        """Do work for the channel; a failure is logged."""
        try:
            work.do(channel)
        except ChannelClosedError:
            return  # closed concurrently
        except ChannelError as error:
            _log.error("channel %s: %s failed: %s", channel.name, work.noun, error)
        except Exception:  # noqa: BLE001  # the next interval tries again
            _log.exception(
                "channel %s: %s failed unexpectedly, which is a bug; it is tried again later", channel.name, work.noun
            )
