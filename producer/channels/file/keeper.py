"""Keeper: the sync thread of a file channel, which also writes its checkpoints."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from ...model.errors import ChannelClosedError, ChannelError
from ...runtime.clock import Clock, Deadline, Signal
from ...runtime.loggers import get_logger
from .options import FileChannelOptions

_log = get_logger("loghub.channel")


class Kept(Protocol):
    """The part of a file channel that its sync thread uses."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def options(self) -> FileChannelOptions:
        """Options with the intervals of syncs and checkpoints."""

    def sync(self, timeout: float | None = None) -> None:
        """Wait until all commits are on the disk."""

    def checkpoint(self, *, force: bool = False) -> bool:
        """Write a checkpoint."""


class Keeper:
    """Sync thread of one channel: syncs it and writes its checkpoints at their intervals.

    It holds a weak reference to the channel: the thread ends if the channel is dropped without ``close``.

    :param channel: the channel; without any interval in its options no thread is started.
    """

    def __init__(self, channel: Kept, clock: Clock) -> None:
        self._channel = weakref.ref(channel, self._dropped)
        self._clock = clock
        self._checkpoints, self._syncs = channel.options.checkpoint_interval, channel.options.interval
        self._wake = Signal()
        self._stop = threading.Event()
        self._hurried = False  # a sync was requested
        self._thread = threading.Thread(target=self._run, name=f"{channel.name}-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread, if any interval is set."""
        if self._checkpoints is not None or self._syncs is not None:
            self._thread.start()

    def hurry(self) -> None:
        """Request a sync before its interval ends, so that no commit has to wait for it. No effect without a thread."""
        if not self._hurried and self._thread.is_alive():
            self._hurried = True
            self._wake.set()

    def stop(self) -> None:
        """Start no further work, and wait for the work in progress."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _dropped(self, _: object) -> None:
        self._stop.set()
        self._wake.set()

    def _run(self) -> None:
        due = {self._checkpoint: self._checkpoints, self._sync: self._syncs}
        periods = {work: period for work, period in due.items() if period is not None}
        now = self._clock.monotonic()
        times = {work: now + period for work, period in periods.items()}
        while not self._stop.is_set():
            self._clock.wait_for(self._wake, Deadline(min(times.values())))
            channel = self._channel()
            if self._stop.is_set() or channel is None:
                return
            if self._hurried:
                self._hurried = False  # before the sync: records written during it need another one
                self._sync(channel)
            for work, period in periods.items():
                if self._clock.monotonic() >= times[work]:
                    work(channel)
                    times[work] = self._clock.monotonic() + period
            del channel

    def _sync(self, channel: Kept) -> None:
        try:
            channel.sync()
        except ChannelClosedError:
            return  # closed concurrently
        except ChannelError as error:
            _log.error("channel %s: %s", channel.name, error)
        except Exception:  # noqa: BLE001  # the next interval tries again
            _log.exception(
                "channel %s: the sync failed unexpectedly, which is a bug; it is tried again later",
                channel.name,
            )

    def _checkpoint(self, channel: Kept) -> None:
        try:
            channel.checkpoint()
        except ChannelClosedError:
            return
        except Exception:  # noqa: BLE001  # the next interval tries again
            _log.exception(
                "channel %s: the checkpoint failed unexpectedly, which is a bug; it is tried again later",
                channel.name,
            )
