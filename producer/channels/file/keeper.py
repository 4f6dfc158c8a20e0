"""Keeper: the thread of a file channel, which writes checkpoints, and syncs where that is due, or will be soon."""

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
    """What is kept: a file channel."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def options(self) -> FileChannelOptions:
        """What says what is due when."""

    def sync(self, timeout: float | None = None) -> None:
        """Wait for the disk."""

    def checkpoint(self, *, force: bool = False) -> bool:
        """Write one."""


class Keeper:
    """Syncs one channel, and writes its checkpoints, when that is due.

    It holds the channel weakly: one that is dropped without ``close`` ends its thread.

    :param channel: whose options say what is due when; without any interval no thread is started.
    """

    def __init__(self, channel: Kept, clock: Clock) -> None:
        self._channel = weakref.ref(channel, self._dropped)
        self._clock = clock
        self._checkpoints, self._syncs = channel.options.checkpoint_interval, channel.options.interval
        self._wake = Signal()
        self._stop = threading.Event()
        self._hurried = False  # somebody wants a sync
        self._thread = threading.Thread(target=self._run, name=f"{channel.name}-keeper", daemon=True)

    def start(self) -> None:
        """Begin, if anything is ever due."""
        if self._checkpoints is not None or self._syncs is not None:
            self._thread.start()

    def hurry(self) -> None:
        """Sync soon, lest somebody has to wait for it later; nothing if there is no thread."""
        if not self._hurried and self._thread.is_alive():
            self._hurried = True
            self._wake.set()

    def stop(self) -> None:
        """Begin nothing more, and wait for what was begun."""
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
                self._hurried = False  # before the sync: what is written meanwhile needs another one
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
            return  # it was closed a moment ago
        except ChannelError as error:
            _log.error("channel %s: %s", channel.name, error)
        except Exception:  # noqa: BLE001  # the next one is due all the same
            _log.exception("channel %s: a bug: the sync failed; the next one may not", channel.name)

    def _checkpoint(self, channel: Kept) -> None:
        try:
            channel.checkpoint()
        except ChannelClosedError:
            return
        except Exception:  # noqa: BLE001  # the next one is due all the same
            _log.exception("channel %s: a bug: the checkpoint failed; the next one may not", channel.name)
