"""Doubles for tests, of this package and of yours: a clock that stands still, sinks that remember or follow a script.

:class:`LogHubServer`, which speaks the real protocol on a socket, is here too (extra ``server``).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .model.config import ProjectConfig
from .model.errors import AttemptError
from .model.interfaces import Delivery, Payload, Receipt, Record, Sink
from .model.records import StreamKey
from .runtime.clock import Deadline, Signal
from .runtime.forks import Stage, watch_fork
from .wire.log_group import encode_tail, split_records

if TYPE_CHECKING:
    from .server import LogHubServer

__all__ = ["LogHubServer", "ManualClock", "RecordingSink", "ScriptedSink"]


def __getattr__(name: str) -> Any:
    if name == "LogHubServer":
        from .server import LogHubServer  # noqa: PLC0415  # needs the extra

        return LogHubServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ManualClock:
    """A clock that moves only when told to; those who wait on it wake when their time has come.

    :param start: seconds since the Unix epoch at the beginning.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._lock = threading.Lock()  # guards _now and _signals
        self._now = 0.0
        self._signals: list[Signal] = []

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def time(self) -> float:
        """Seconds since the Unix epoch."""
        return self._start + self._now

    def advance(self, seconds: float) -> None:
        """Move forward and wake everybody who waits; each looks at the time again."""
        with self._lock:
            self._now += seconds
            signals = list(self._signals)
        for signal in signals:
            signal.set()

    def set_wall(self, seconds: float) -> None:
        """Set what :meth:`time` says, back or forward, as an administrator does; who waits does not notice.

        :param seconds: since the Unix epoch.
        """
        with self._lock:
            self._start = seconds - self._now

    @property
    def waiting(self) -> int:
        """How many wait at this moment."""
        with self._lock:
            return len(self._signals)

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        """See :class:`~producer.runtime.clock.Clock`; ends when ``signal`` is set, or when the time is moved."""
        with self._lock:
            # Under the lock: a move of the time after this look finds the signal.
            if deadline.at is not None and self._now >= deadline.at:
                return
            self._signals.append(signal)
        try:
            signal.wait()
        finally:
            with self._lock:
                self._signals.remove(signal)


class RecordingSink(Sink):
    """Accepts everything and remembers it, as uncompressed LogGroups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards deliveries and _projects
        self._projects: dict[str, ProjectConfig] = {}
        self.deliveries: list[Delivery] = []
        self.closed = False
        watch_fork(self, Stage.SINKS)

    def _renew_in_child(self) -> None:
        """A thread of the parent may hold the lock."""
        self._lock = threading.Lock()

    def put_project(self, project: ProjectConfig) -> None:
        """Remember it; everything is accepted all the same."""
        with self._lock:
            self._projects[project.project] = project

    def remove_project(self, name: str) -> None:
        """Forget it; everything is accepted all the same."""
        with self._lock:
            self._projects.pop(name, None)

    def project_configs(self) -> tuple[ProjectConfig, ...]:
        """See :class:`~producer.model.interfaces.Sink`."""
        with self._lock:
            return tuple(self._projects.values())

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        """See :class:`~producer.model.interfaces.Sink`."""
        return len(self._tail(key, pack_id))

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        """See :class:`~producer.model.interfaces.Sink`."""
        raw = b"".join((*records, self._tail(key, pack_id)))
        return Payload(raw, len(raw))

    def decode(self, payload: Payload) -> list[bytes]:
        """See :class:`~producer.model.interfaces.Sink`."""
        return list(split_records(payload.body))

    def write(self, delivery: Delivery) -> Receipt:
        """See :class:`~producer.model.interfaces.Sink`."""
        with self._lock:
            self.deliveries.append(delivery)
            return Receipt(f"request-{len(self.deliveries)}")

    def records(self) -> list[bytes]:
        """Every record delivered, in the order of delivery."""
        with self._lock:
            return [record for delivery in self.deliveries for record in self.decode(delivery.payload)]

    def close(self) -> None:
        """See :class:`~producer.model.interfaces.Sink`."""
        self.closed = True

    @staticmethod
    def _tail(key: StreamKey, pack_id: str | None) -> bytes:
        return encode_tail(
            key.topic, key.source, key.tags if pack_id is None else (*key.tags, ("__pack_id__", pack_id))
        )


#: One step of a script: an error to raise, None to accept, or a function of the delivery that does either.
Step = AttemptError | None | Callable[[Delivery], AttemptError | None]


class ScriptedSink(RecordingSink):
    """A :class:`RecordingSink` whose attempts follow a script first.

    :param script: one step for each attempt; after the last one everything is accepted.
    :ivar attempts: every delivery that was attempted, also those that failed.
    """

    def __init__(self, script: Iterable[Step] = ()) -> None:
        super().__init__()
        self.script: deque[Step] = deque(script)
        self.attempts: list[Delivery] = []

    def write(self, delivery: Delivery) -> Receipt:
        """Follow the next step of the script."""
        with self._lock:
            self.attempts.append(delivery)
            step = self.script.popleft() if self.script else None
        error = step(delivery) if callable(step) else step
        if error is not None:
            raise error.with_traceback(None)  # of an earlier attempt, whose frames keep all that they saw
        return super().write(delivery)
