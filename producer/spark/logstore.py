"""Read a logstore for Spark: LogGroups as columns, each with its cursor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.config import ProducerConfig
from ..reading.logstore import LogstoreReader, Page
from ..reading.search import LogstoreSearch
from ..reading.signed_client import SignedClient
from ..runtime.clock import Clock
from ..runtime.closing import Closing
from ..wire.cursors import cursor_at, position_of
from ..wire.read_columns import ReadGroups, read_groups
from .options import Target

_NAMES = {name: f"the option {name}" for name in ("project", "logstore", "endpoint")} | {
    "access_key_id": "the option accessKeyId"
}
_ADVICE = {
    "ProjectNotExist": "check the options project and endpoint: a project exists in one region",
    "ShardNotExist": "the shard does not exist: remove it from startingOffsets, endingOffsets and shards",
}


@dataclass(frozen=True, slots=True)
class Pulled:
    """One answer of PullLogs.

    :ivar groups: its LogGroups.
    :ivar cursors: the cursor of each LogGroup, by :func:`cursors_of`.
    :ivar next_cursor: the cursor of the next request.
    :ivar at_end: True if no LogGroup follows yet, or none before the end cursor.
    :ivar body: the decompressed answer.
    """

    groups: ReadGroups
    cursors: Sequence[str]
    next_cursor: str
    at_end: bool
    body: bytes


class LogstoreClient(LogstoreReader, Closing):
    """A reader of one logstore; a context manager. One thread at a time may use it.

    :param target: the logstore and its credentials.
    :param config: the configuration of requests; only signature, region, ``http``, ``failover_ms``, retries and
        backoff are used.
    :param timeout: the limit of a request with all its attempts, seconds; None for no limit.
    """

    def __init__(
        self,
        target: Target,
        config: ProducerConfig | None = None,
        clock: Clock | None = None,
        timeout: float | None = None,
    ) -> None:
        self._target = target
        self._signed = SignedClient(
            target.project,
            f"{target.project.project}/{target.logstore}",
            names=_NAMES,
            advice=_ADVICE,
            config=config,
            clock=clock,
            timeout=timeout,
        )
        super().__init__(self._signed, target.logstore)

    @property
    def target(self) -> Target:
        """The logstore and its credentials."""
        return self._target

    @property
    def searching(self) -> LogstoreSearch:
        """The search of the logstore."""
        return LogstoreSearch(self._signed, self._target.logstore)

    def close(self) -> None:
        """Close the connections."""
        self._signed.close()

    def pull_columns(self, shard: str, cursor: str, count: int, end_cursor: str | None = None) -> Pulled:
        """Pull LogGroups from ``cursor`` on.

        :raises LogHubReadError: the server did not return them.
        """
        page: Page[tuple[ReadGroups, bytes]] = self.pull(
            shard, cursor, lambda body: (read_groups(body), body), count, end_cursor
        )
        groups, body = page.content
        return Pulled(groups, cursors_of(cursor, page.cursor, len(groups.sizes)), page.cursor, page.at_end, body)


def cursors_of(cursor: str, following: str, count: int) -> list[str]:
    """Return the cursors of the ``count`` LogGroups in an answer from ``cursor`` to ``following``.

    The protocol gives only these two. If their distance is the number of LogGroups, each LogGroup has the cursor of its
    position. Otherwise it has ``cursor#n``: the n-th LogGroup (from 0) after ``cursor``.
    """
    first, last = position_of(cursor), position_of(following)
    if first is not None and last is not None and last - first == count:
        return [cursor_at(first + index) for index in range(count)]
    return [f"{cursor}#{index}" for index in range(count)]


def is_cursor(cursor: str) -> bool:
    """Return True for a cursor of the server, False for ``cursor#n``."""
    return "#" not in cursor
