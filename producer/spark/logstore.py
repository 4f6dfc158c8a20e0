"""A client of LogHub's reading side: ListShards, GetCursor, GetCursorTime, PullLogs.

What is tried again, and what an error says, is in :mod:`.signed_client`.

Source: LogHub protocol, Reading back; the official SDK for what cursors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from ..clock import Clock
from ..config import ProducerConfig
from ..sinks.http.transport import Answer, target_of
from ..wire.compression import decompress
from ..wire.cursors import cursor_at, position_of
from ..wire.read_columns import ReadGroups, read_groups
from .options import Target
from .signed_client import Question, SignedClient

_T = TypeVar("_T")

#: LogGroups in one answer, at most. Source: LogHub protocol, PullLogs.
MAX_PULL_COUNT = 1000

_NAMES = {name: f"the option {name}" for name in ("project", "logstore", "endpoint")} | {
    "access_key_id": "the option accessKeyId"
}
_ADVICE = {
    "ProjectNotExist": "check the options project and endpoint: a project exists in one region",
    "ShardNotExist": "the shard is gone, or never was: leave it out of startingOffsets, endingOffsets and shards",
}
_PROTOBUF = {"Accept": "application/x-protobuf"}


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


class LogstoreClient:
    """A reader of one logstore; a context manager. One thread at a time may use it.

    :param target: the logstore, and who signs.
    :param config: the signature's version and region, ``http``, ``retries`` and its backoff; the rest is not looked at.
    """

    def __init__(self, target: Target, config: ProducerConfig | None = None, clock: Clock | None = None) -> None:
        self._target = target
        http = target_of(target.project.project, target.project.endpoint)
        self._client = SignedClient(
            target.project, http, str(target), names=_NAMES, advice=_ADVICE, config=config, clock=clock
        )

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

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def list_shards(self) -> list[str]:
        """The shards, in order of their numbers: also those that a split or a merge made read-only.

        :raises LogHubReadError: the server did not say.
        """

        def numbers(answer: Any) -> list[str]:
            return [str(number) for number in sorted(int(shard["shardID"]) for shard in answer)]

        return self._json("ListShards", "", {}, numbers)

    def cursor(self, shard: str, start: str | int) -> str:
        """The cursor of the first LogGroup that the server received at ``start`` or later.

        :param start: ``begin``, ``end``, or Unix seconds.
        :raises LogHubReadError: the server did not say.
        """
        asked = {"type": "cursor", "from": str(start)}
        what = f"GetCursor of shard {shard} from {start}"
        return self._json(what, f"/{shard}", asked, lambda answer: str(answer["cursor"]))

    def cursor_time(self, shard: str, cursor: str) -> int:
        """When the server received the LogGroup at ``cursor``, Unix seconds; at the end of a shard about now.

        :raises LogHubReadError: the server did not say.
        """
        asked = {"type": "cursor_time", "cursor": cursor}
        what = f"GetCursorTime of shard {shard} at {cursor}"
        return self._json(what, f"/{shard}", asked, lambda answer: int(answer["cursor_time"]))

    def pull(self, shard: str, cursor: str, count: int, end_cursor: str | None = None) -> Pulled:
        """LogGroups from ``cursor`` on.

        :param count: at most so many, 1 to :data:`MAX_PULL_COUNT`; the server may give fewer.
        :param end_cursor: none at or behind this one.
        :raises LogHubReadError: the server did not hand them out.
        """
        asked = {"type": "log", "cursor": cursor, "count": str(count)}
        if end_cursor is not None:
            asked["end_cursor"] = end_cursor
        what = f"PullLogs of shard {shard} at {cursor}"
        question = self._question(f"/{shard}", asked)
        return self._client.ask(what, question, lambda answer, headers: _pulled(answer, headers, asked, end_cursor))

    def _json(self, what: str, path: str, asked: Mapping[str, str], take: Callable[[Any], _T]) -> _T:
        return self._client.json(what, self._question(path, asked), take)

    def _question(self, path: str, asked: Mapping[str, str]) -> Question:
        return Question(f"/logstores/{self._target.logstore}/shards{path}", asked, headers=_PROTOBUF)


def _pulled(answer: Answer, headers: Mapping[str, str], asked: Mapping[str, str], end_cursor: str | None) -> Pulled:
    """
    :raises ValueError: it makes no sense; or as :func:`~producer.wire.compression.decompress`.
    """
    following = headers["x-log-cursor"]
    size = int(headers["x-log-bodyrawsize"])
    body = decompress(answer.body, headers.get("x-log-compresstype", "none"), size)
    groups = read_groups(body)
    at_end = following in (asked["cursor"], end_cursor)
    return Pulled(groups, cursors_of(asked["cursor"], following, len(groups.sizes)), following, at_end, body)


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
