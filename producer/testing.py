"""Provide test doubles: a manual clock, and sinks that record deliveries or follow a script.

:class:`LogHubServer`, which speaks the real protocol on a socket, is here too (extra ``server``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .model.config import ProjectConfig
from .model.errors import AttemptError
from .model.interfaces import Delivery, Payload, Receipt, Record, Sink
from .model.records import StreamKey
from .runtime.clock import Deadline, Signal
from .runtime.forks import Stage, watch_fork
from .runtime.locks import Lock
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
    """A clock that moves only when the test advances it, and then wakes waiting threads.

    :param start: seconds since the Unix epoch at the beginning.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._lock = Lock()  # guards _now and _signals
        self._now = 0.0
        self._signals: list[Signal] = []

    def monotonic(self) -> float:
        """Return the seconds since the clock was made."""
        return self._now

    def time(self) -> float:
        """Return the seconds since the Unix epoch."""
        return self._start + self._now

    def advance(self, seconds: float) -> None:
        """Advance the clock and wake all waiting threads; each checks its deadline again."""
        with self._lock:
            self._now += seconds
            signals = list(self._signals)
        for signal in signals:
            signal.set()

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock, back or forward, as an administrator does; waiting threads do not notice.

        :param seconds: since the Unix epoch.
        """
        with self._lock:
            self._start = seconds - self._now

    @property
    def waiting(self) -> int:
        """Return the number of waiting threads."""
        with self._lock:
            return len(self._signals)

    def wait_for(self, signal: Signal, deadline: Deadline) -> None:
        """Return when ``signal`` is set, or when the clock is moved."""
        with self._lock:
            # Under the lock: a move of the clock after this check finds the signal.
            if deadline.at is not None and self._now >= deadline.at:
                return
            self._signals.append(signal)
        try:
            signal.wait()
        finally:
            with self._lock:
                self._signals.remove(signal)


class RecordingSink(Sink):
    """A sink that accepts every delivery and records it, as uncompressed LogGroups.

    It decodes no fields: to compare them use a :class:`LogHubServer`.

    Example:

        >>> sink = RecordingSink()
        >>> with Producer(sink=sink) as producer:
        ...     future = producer.send("my-project", "app-log", {"n": 1})
        ...
        >>> len(sink.records()), sink.deliveries[0].key.logstore
        (1, 'app-log')

    :ivar deliveries: the accepted batches in order: ``key`` is the stream, ``payload.body`` the LogGroup.
    :ivar closed: True once the producer has closed the sink.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards deliveries and _projects
        self._projects: dict[str, ProjectConfig] = {}
        self.deliveries: list[Delivery] = []
        self.closed = False
        watch_fork(self, Stage.SINKS)

    def _renew_in_child(self) -> None:
        """Replace the lock: a thread of the parent may hold it."""
        self._lock = Lock()

    def put_project(self, project: ProjectConfig) -> None:
        """Record the project; deliveries to other projects are accepted, too."""
        with self._lock:
            self._projects[project.project] = project

    def remove_project(self, name: str) -> None:
        """Forget the project; deliveries to it are still accepted."""
        with self._lock:
            self._projects.pop(name, None)

    def project_configs(self) -> tuple[ProjectConfig, ...]:
        with self._lock:
            return tuple(self._projects.values())

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        return len(self._tail(key, pack_id))

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        raw = b"".join((*records, self._tail(key, pack_id)))
        return Payload(raw, len(raw))

    def decode(self, payload: Payload) -> list[bytes]:
        return list(split_records(payload.body))

    def write(self, delivery: Delivery) -> Receipt:
        with self._lock:
            self.deliveries.append(delivery)
            return Receipt(f"request-{len(self.deliveries)}")

    def records(self) -> list[bytes]:
        """Return every delivered record, in the order of delivery: the encoded bytes of one log each."""
        with self._lock:
            return [record for delivery in self.deliveries for record in self.decode(delivery.payload)]

    def close(self) -> None:
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
        with self._lock:
            self.attempts.append(delivery)
            step = self.script.popleft() if self.script else None
        error = step(delivery) if callable(step) else step
        if error is not None:
            raise error.with_traceback(None)  # the frames of an earlier attempt keep their objects alive
        return super().write(delivery)
