"""The source ``loghub`` as a member of a consumer group: which shards are its own, and how far the group has read.

Heartbeats go out on a thread of their own, also while a channel is full. A member that got no answer for the group's
timeout holds its shards for lost, as LogHub does: from then on others may read them. A checkpoint is saved only of what
nobody can lose any more (:meth:`~..interfaces.Outlet.safe_end`).

Whoever makes the group notes there where ``start`` is in each shard; a shard without a note came later, and is read
from its beginning.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ...reading.consumer_group import ConsumerGroup
from ...reading.errors import LogHubReadError
from ...runtime.clock import Clock, Stop
from ...runtime.loggers import get_logger
from ...runtime.whole_file import write_whole

_log = get_logger("loghub.agent.source.loghub")

#: Heartbeats of a timeout.
BEATS = 3
#: Seconds between two savings of checkpoints.
_SAVE_INTERVAL = 1.0
#: What LogHub says to who is no member any more, or to whom a shard does not belong.
_NOT_MINE = ("ConsumerNotExsit", "ConsumerNotExist", "ConsumerNotMatch")


class Membership:
    """See the module; a context manager.

    :param heart: asked on a thread of its own.
    :param group: the same group, for the thread that reads.
    :param timeout: seconds of silence after which a member has left.
    """

    def __init__(self, heart: ConsumerGroup, group: ConsumerGroup, timeout: int, clock: Clock) -> None:
        self._heart, self._group, self._timeout, self._clock = heart, group, timeout, clock
        self._lock = threading.Lock()  # guards what follows
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
        """Make the group if there is none, and become a member.

        :param begin: for each shard that is there the cursor where a new group begins.
        :raises LogHubReadError: LogHub refuses.
        """
        if self._group.create(self._timeout):
            for shard, cursor in begin().items():
                self._group.save(shard, cursor, force=True)
        self._beat()

    def wanted(self) -> frozenset[str]:
        """The shards that this member shall read."""
        with self._lock:
            lost = self._clock.monotonic() - self._heard >= self._timeout
            return frozenset() if lost else self._given

    def is_asked(self) -> bool:
        """Whether some of the shards that are read are to be given up."""
        wanted = self.wanted()
        with self._lock:
            return not self._held <= wanted

    def take(self, shard: str) -> str | None:
        """Begin with a shard: the cursor up to which the group has read it."""
        with self._lock:
            self._held.add(shard)
        checkpoint = self._group.checkpoints().get(shard)
        self._saved[shard] = checkpoint or ""
        return checkpoint

    def give_up(self, shard: str) -> None:
        """Another member may have it."""
        self._saved.pop(shard, None)
        with self._lock:
            self._held.discard(shard)

    def save(self, cursors: Mapping[str, str], *, at_once: bool = False) -> None:
        """Tell the group how far shards were read, as often as is good.

        :raises LogHubReadError: LogHub cannot be told.
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
                "another consumer has shard %s, and reads again what is behind its checkpoint: %s", shard, error
            )

    def _live(self) -> None:
        while not self._stop.wait(self._timeout / BEATS):
            try:
                self._beat()
            except LogHubReadError as error:
                _log.warning("no heartbeat reached LogHub: %s", error)
            except Exception:  # noqa: BLE001  # the shards are given up when the timeout is over
                _log.exception("a heartbeat failed")

    def _beat(self) -> None:
        begun = self._clock.monotonic()
        with self._lock:
            held = set(self._held)
        given = frozenset(self._heart.heartbeat(held))
        with self._lock:
            self._given, self._heard = given, begun


class UntilAsked(Stop):
    """Ends a wait for room in a channel also when shards are to be given up.

    :param outer: ends it, too.
    """

    def __init__(self, outer: Stop, membership: Membership) -> None:
        super().__init__()
        self._outer, self._membership = outer, membership

    def is_set(self) -> bool:
        return self._outer.is_set() or self._membership.is_asked()

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        with self._outer.waking(wake):
            yield

    def wait(self, seconds: float | None = None) -> bool:
        self._outer.wait(seconds)
        return self.is_set()


def consumer_name(state: Path, prefix: str) -> str:
    """A name that no other agent has, and that this one has again when it is started again.

    :param state: where it is kept.
    """
    file = state / "consumer"
    with suppress(FileNotFoundError):
        if kept := file.read_text(encoding="utf-8").strip():  # a power cut may leave an empty file
            return kept
    state.mkdir(parents=True, exist_ok=True)
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    write_whole(file, f"{name}\n".encode(), state / "consumer.new")
    return name
