"""Membership of the source ``loghub`` in a consumer group: the assigned shards, and the group's checkpoints.

A thread sends heartbeats, also while a channel is full. A member without an answer for the group's timeout treats its
shards as lost, as LogHub does: other members may read them. A checkpoint is saved only for logs that are safe in the
channels (:meth:`~..interfaces.Outlet.safe_end`).

The member that creates the group saves the cursor of ``start`` in each shard. A shard without a checkpoint was created
later, and is read from its begin.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ...reading.consumer_group import ConsumerGroup
from ...reading.errors import LogHubReadError
from ...runtime.clock import Clock, Stop
from ...runtime.locks import Lock
from ...runtime.loggers import get_logger
from ...runtime.whole_file import write_whole

_log = get_logger("loghub.agent.source.loghub")

#: Heartbeats in one timeout.
BEATS = 3
#: Seconds between two saves of checkpoints.
_SAVE_INTERVAL = 1.0
#: LogHub's error codes if the consumer is no longer a member, or the shard belongs to another one.
_NOT_MINE = ("ConsumerNotExsit", "ConsumerNotExist", "ConsumerNotMatch")


class Membership:
    """Membership in a consumer group; a context manager.

    :param heart: the group's client for the heartbeat thread.
    :param group: the group's client for the reading thread.
    :param timeout: seconds without a heartbeat after which a member is removed.
    """

    def __init__(self, heart: ConsumerGroup, group: ConsumerGroup, timeout: int, clock: Clock) -> None:
        self._heart, self._group, self._timeout, self._clock = heart, group, timeout, clock
        self._lock = Lock()  # guards the fields below
        self._held: set[str] = set()
        self._given: frozenset[str] = frozenset()
        self._heard = clock.monotonic()
        self._saved: dict[str, str] = {}
        self._next_save = clock.monotonic()
        self._stop = Stop(clock)
        self._thread = threading.Thread(target=self._live, name="agent-loghub-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def join(self, begin: Callable[[], Mapping[str, str]]) -> None:
        """Create the group if it does not exist, and become a member.

        :param begin: returns the cursor where a new group begins, for each existing shard.
        :raises LogHubReadError: LogHub refuses.
        """
        if self._group.create(self._timeout):
            for shard, cursor in begin().items():
                self._group.save(shard, cursor, force=True)
        self._beat()

    def wanted(self) -> frozenset[str]:
        """Return the shards assigned to this member."""
        with self._lock:
            lost = self._clock.monotonic() - self._heard >= self._timeout
            return frozenset() if lost else self._given

    def must_release(self) -> bool:
        """Return True if a shard that is being read is not assigned any more."""
        wanted = self.wanted()
        with self._lock:
            return not self._held <= wanted

    def take(self, shard: str) -> str | None:
        """Begin to read a shard; return the group's checkpoint."""
        with self._lock:
            self._held.add(shard)
        checkpoint = self._group.checkpoints().get(shard)
        self._saved[shard] = checkpoint or ""
        return checkpoint

    def release(self, shard: str) -> None:
        """Release a shard to other members."""
        self._saved.pop(shard, None)
        with self._lock:
            self._held.discard(shard)

    def save(self, cursors: Mapping[str, str], *, at_once: bool = False) -> None:
        """Save checkpoints, at most once a second.

        :raises LogHubReadError: LogHub does not save them.
        """
        now = self._clock.monotonic()
        if not at_once and now < self._next_save:
            return
        self._next_save = now + _SAVE_INTERVAL
        for shard, cursor in cursors.items():
            if self._saved.get(shard) != cursor:
                self._save(shard, cursor)

    def _save(self, shard: str, cursor: str) -> None:
        try:
            self._group.save(shard, cursor)
            self._saved[shard] = cursor
        except LogHubReadError as error:
            if error.code not in _NOT_MINE:
                raise
            _log.warning(
                "shard %s belongs to another consumer, which reads again from the checkpoint on: %s", shard, error
            )

    def _live(self) -> None:
        while not self._stop.wait(self._timeout / BEATS):
            try:
                self._beat()
            except LogHubReadError as error:
                _log.warning("a heartbeat to LogHub failed: %s", error)
            except Exception:  # noqa: BLE001  # after the timeout the shards count as lost
                _log.exception("a heartbeat to LogHub failed with an unexpected error")

    def _beat(self) -> None:
        begun = self._clock.monotonic()
        with self._lock:
            held = set(self._held)
        given = frozenset(self._heart.heartbeat(held))
        with self._lock:
            self._given, self._heard = given, begun


class UntilRelease(Stop):
    """Stop signal that is also set when shards have to be released.

    :param outer: the source's stop signal.
    """

    def __init__(self, outer: Stop, membership: Membership) -> None:
        super().__init__(outer=outer)
        self._membership = membership

    def is_set(self) -> bool:
        return super().is_set() or self._membership.must_release()


def consumer_name(state: Path, prefix: str) -> str:
    """Return a unique consumer name, which is kept across restarts.

    :param state: the directory of the file with the name.
    """
    file = state / "consumer"
    with suppress(FileNotFoundError):
        if kept := file.read_text(encoding="utf-8").strip():  # a power cut may leave an empty file
            return kept
    state.mkdir(parents=True, exist_ok=True)
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    write_whole(file, f"{name}\n".encode(), state / "consumer.new")
    return name
