"""A logstore, shard by shard: ListShards, GetCursor, GetCursorTime, PullLogs.

What is tried again, and what an error says, is in :mod:`.signed_client`.

Source: LogHub protocol, Reading back; the official SDK for what cursors are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..sinks.http.transport import Answer
from ..text.plural import counted
from ..wire.compression import decompress
from ..wire.cursors import MAX_PULL_COUNT
from .errors import AnswerTooLargeError
from .signed_client import Question, SignedClient

_T = TypeVar("_T")

_PROTOBUF = {"Accept": "application/x-protobuf"}


@dataclass(frozen=True, slots=True)
class Page(Generic[_T]):
    """One answer of PullLogs.

    :ivar content: what was made of its LogGroups.
    :ivar cursor: where to go on.
    :ivar at_end: nothing follows at this moment, or not before the end cursor.
    """

    content: _T
    cursor: str
    at_end: bool


class LogstoreReader:
    """Asks for what a logstore holds; every method raises :class:`~.errors.LogHubReadError` if LogHub does not say.

    :param client: who closes it is whoever made it.
    """

    def __init__(self, client: SignedClient, logstore: str) -> None:
        self._client, self._path = client, f"/logstores/{logstore}/shards"

    def shards(self) -> list[str]:
        """The shards, in order of their numbers: also those that a split or a merge made read-only."""

        def numbers(answer: Any) -> list[str]:
            return [str(number) for number in sorted(int(shard["shardID"]) for shard in answer)]

        return self._client.json("ListShards", Question(self._path), numbers)

    def cursor(self, shard: str, start: str | int) -> str:
        """The cursor of the first LogGroup that the server received at ``start`` or later.

        :param start: ``begin``, ``end``, or Unix seconds.
        """
        question = Question(f"{self._path}/{shard}", {"type": "cursor", "from": str(start)})
        what = f"GetCursor of shard {shard} from {start}"
        return self._client.json(what, question, lambda answer: str(answer["cursor"]))

    def cursor_time(self, shard: str, cursor: str) -> int:
        """When the server received the LogGroup at ``cursor``, Unix seconds; at the end of a shard about now."""
        question = Question(f"{self._path}/{shard}", {"type": "cursor_time", "cursor": cursor})
        what = f"GetCursorTime of shard {shard} at {cursor}"
        return self._client.json(what, question, lambda answer: int(answer["cursor_time"]))

    def pull(
        self,
        shard: str,
        cursor: str,
        read: Callable[[bytes], _T],
        count: int = MAX_PULL_COUNT,
        end: str | None = None,
        most_bytes: int | None = None,
    ) -> Page[_T]:
        """LogGroups from ``cursor`` on, in the order in which they came.

        :param read: makes what is wanted of the answer, decompressed; what it raises of a damaged one has it asked for
            again.
        :param count: LogGroups, 1 to ``MAX_PULL_COUNT``; the server may give fewer.
        :param end: none at or behind this cursor.
        :param most_bytes: bytes that an answer may have, decompressed; None for no limit.
        :raises AnswerTooLargeError: it has more; it is not decompressed.
        """
        asked = {"type": "log", "cursor": cursor, "count": str(count)}
        if end is not None:
            asked["end_cursor"] = end

        def take(answer: Answer, headers: Mapping[str, str]) -> Page[_T]:
            following = headers["x-log-cursor"]
            size = raw_size_of(answer, headers)
            if most_bytes is not None and size > most_bytes:
                raise AnswerTooLargeError(
                    f"PullLogs of shard {shard} at {cursor}: the answer to a request for {counted(count, 'LogGroup')} "
                    f"has {counted(size, 'byte')} decompressed; the reader takes {most_bytes}: raise its limit"
                )
            return Page(read(body_of(answer, headers)), following, following in (cursor, end))

        question = Question(f"{self._path}/{shard}", asked, headers=_PROTOBUF)
        return self._client.ask(f"PullLogs of shard {shard} at {cursor}", question, take)


def body_of(answer: Answer, headers: Mapping[str, str]) -> bytes:
    """What was answered, decompressed.

    :raises CompressionError: it is damaged.
    """
    return decompress(answer.body, headers.get("x-log-compresstype", "none"), raw_size_of(answer, headers))


def raw_size_of(answer: Answer, headers: Mapping[str, str]) -> int:
    """Bytes of an answer, decompressed, as the server says; no more are ever allocated."""
    return int(headers.get("x-log-bodyrawsize", len(answer.body)))
