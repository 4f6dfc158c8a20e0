"""Mover: the one thread that watches the time. It hands on batches that lingered and retries that are due."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...runtime.clock import Clock
from ..batching.batch import ProducerBatch
from ..threads import StageThread
from .retry_queue import RetryQueue


class Mover:
    """Waits on the retry queue, never longer than until the next batch has lingered.

    A batch opened during a wait cannot expire before the wait is over, since no wait is longer than ``linger_ms``; so
    senders need not wake anybody. Only when no batch was opened for two seconds the waits are as long as that, should
    ``linger_ms`` be less, and who opens the next one calls :meth:`watch`.

    :param hand_on_lingered: hands on the batches that lingered long enough by that time; the seconds until the next one
        has.
    :param hand_on_open: hands on all that take records.
    :param resubmit: takes batches that were to be retried.
    :param open_gates: lets those go that a gate kept back until now.
    :param orphaned: asked at each turn; when it is True nobody can close the producer any more, and ``abandon``
        is called.
    :param report: says how things are; must not raise.
    :param report_every: so often, seconds.
    """

    def __init__(
        self,
        name: str,
        *,
        hand_on_lingered: Callable[[float], float],
        hand_on_open: Callable[[], object],
        retry_queue: RetryQueue,
        resubmit: Callable[[ProducerBatch], None],
        open_gates: Callable[[], object],
        clock: Clock,
        orphaned: Callable[[], bool],
        abandon: Callable[[], None],
        report: Callable[[], None] = lambda: None,
        report_every: float = math.inf,
    ) -> None:
        self._hand_on_lingered = hand_on_lingered
        self._hand_on_open = hand_on_open
        self._retry_queue = retry_queue
        self._resubmit = resubmit
        self._open_gates = open_gates
        self._hurried = False
        self._clock = clock
        self._orphaned = orphaned
        self._abandon = abandon
        self._report, self._report_every = report, report_every
        self._report_at = clock.monotonic() + report_every
        self._stopping = False
        self.thread = StageThread(f"{name}-mover", self._loop)

    def run_once(self) -> float:
        """Hand on what is due now; returns the seconds until something may be due again."""
        if self._hurried:
            self._hurried = False
            self._hand_on_open()
        wait = self._hand_on_lingered(self._clock.monotonic())
        for batch in self._retry_queue.take_due(self._clock.monotonic()):
            self._resubmit(batch)
        self._open_gates()
        return min(wait, self._until_report())

    def _until_report(self) -> float:
        """Say how things are, if that is due; the seconds until the next time."""
        left = self._report_at - self._clock.monotonic()
        if left > 0:
            return left
        self._report()
        self._report_at += max(self._report_every, self._report_every - left)
        return self._report_every

    def watch(self) -> None:
        """A batch was opened after a while without any."""
        self._retry_queue.wake()

    def hurry(self) -> None:
        """Hand on all batches that take records, on the mover's thread, which no signal handler interrupts."""
        self._hurried = True
        self._retry_queue.wake()

    def _loop(self) -> None:
        while not self._stopping:
            wait = self.run_once()
            if self._orphaned():
                self._abandon()
                return
            self._retry_queue.wait(wait)

    def stop(self) -> None:
        """Let the thread end at once."""
        self._stopping = True
        self._retry_queue.wake()
