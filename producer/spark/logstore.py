"""What Spark reads of a logstore: LogGroups as columns, each with its cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..model.config import ProducerConfig
from ..reading.logstore import LogstoreReader, Page
from ..reading.search import LogstoreSearch
from ..reading.signed_client import SignedClient
from ..runtime.clock import Clock
from ..sinks.http.transport import target_of
from ..wire.cursors import cursor_at, position_of
from ..wire.read_columns import ReadGroups, read_groups
from .options import Target

_NAMES = {name: f"the option {name}" for name in ("project", "logstore", "endpoint")} | {
    "access_key_id": "the option accessKeyId"
}
_ADVICE = {
    "ProjectNotExist": "check the options project and endpoint: a project exists in one region",
    "ShardNotExist": "the shard is gone, or never was: leave it out of startingOffsets, endingOffsets and shards",
}


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer of PullLogs.

    :ivar groups: its LogGroups.
    :ivar cursors: the cursor of each; see :func:`cursors_of`.
    :ivar next_cursor: where to go on.
    :ivar at_end: nothing follows at this moment, or not before the end cursor.
    :ivar body: the answer, decompressed.
    """

    groups: ReadGroups
    cursors: Sequence[str]
    next_cursor: str
    at_end: bool
    body: bytes


class LogstoreClient(LogstoreReader):
    """A reader of one logstore; a context manager. One thread at a time may use it.

    :param target: the logstore, and who signs.
    :param config: the signature's version and region, ``http``, ``retries`` and its backoff; the rest is not looked at.
    :param timeout: seconds that a request may take, with all its attempts; None for no such limit.
    """

    def __init__(
        self,
        target: Target,
        config: ProducerConfig | None = None,
        clock: Clock | None = None,
        timeout: float | None = None,
    ) -> None:
        self._target = target
        http = target_of(target.project.project, target.project.endpoint)
        self._signed = SignedClient(
            target.project,
            http,
            str(target),
            names=_NAMES,
            advice=_ADVICE,
            config=config,
            clock=clock,
            timeout=timeout,
        )
        super().__init__(self._signed, target.logstore)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def target(self) -> Target:
        """The logstore, and who signs."""
        return self._target

    @property
    def searching(self) -> LogstoreSearch:
        """What finds logs of the logstore."""
        return LogstoreSearch(self._signed, self._target.logstore)

    def close(self) -> None:
        """Close the connections."""
        self._signed.close()

    def pull_columns(self, shard: str, cursor: str, count: int, end_cursor: str | None = None) -> Pulled:
        """LogGroups from ``cursor`` on, as :meth:`~.LogstoreReader.pull`.

        :raises LogHubReadError: the server did not hand them out.
        """
        page: Page[tuple[ReadGroups, bytes]] = self.pull(
            shard, cursor, lambda body: (read_groups(body), body), count, end_cursor
        )
        groups, body = page.content
        return Pulled(groups, cursors_of(cursor, page.cursor, len(groups.sizes)), page.cursor, page.at_end, body)


def cursors_of(cursor: str, following: str, count: int) -> list[str]:
    """The cursors of ``count`` LogGroups that an answer gave for ``cursor``, whose next cursor is ``following``.

    The protocol names only the two. Where their distance is the number of LogGroups, each has the cursor of its place;
    else it is ``cursor#n``, the n-th (from 0) LogGroup from ``cursor`` on.
    """
    first, last = position_of(cursor), position_of(following)
    if first is not None and last is not None and last - first == count:
        return [cursor_at(first + index) for index in range(count)]
    return [f"{cursor}#{index}" for index in range(count)]


def is_cursor(cursor: str) -> bool:
    """Whether the server knows it, rather than a place that :func:`cursors_of` describes."""
    return "#" not in cursor
