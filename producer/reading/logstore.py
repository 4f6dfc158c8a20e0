"""Reads of a logstore, shard by shard: ListShards, GetCursor, GetCursorTime, PullLogs.

:mod:`.signed_client` retries the requests and words the errors.

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

    :ivar content: the result of decoding its LogGroups.
    :ivar cursor: the cursor to continue with.
    :ivar at_end: True if no LogGroup follows at this moment, or none before the end cursor.
    """

    content: _T
    cursor: str
    at_end: bool


class LogstoreReader:
    """A reader of a logstore; every method raises :class:`~.errors.LogHubReadError` if LogHub refuses.

    :param client: the client, which the caller closes.
    """

    def __init__(self, client: SignedClient, logstore: str) -> None:
        self._client, self._path = client, f"/logstores/{logstore}/shards"

    def shards(self) -> list[str]:
        """Return the shards by number, those that are readonly after a split or merge included."""

        def numbers(answer: Any) -> list[str]:
            return [str(number) for number in sorted(int(shard["shardID"]) for shard in answer)]

        return self._client.json("ListShards", Question(self._path), numbers)

    def cursor(self, shard: str, start: str | int) -> str:
        """Return the cursor of the first LogGroup that the server received at ``start`` or later.

        :param start: ``begin``, ``end``, or Unix seconds.
        """
        question = Question(f"{self._path}/{shard}", {"type": "cursor", "from": str(start)})
        what = f"GetCursor of shard {shard} from {start}"
        return self._client.json(what, question, lambda answer: str(answer["cursor"]))

    def cursor_time(self, shard: str, cursor: str) -> int:
        """Return when the server received the LogGroup at ``cursor``, Unix seconds; about now at a shard's end."""
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
        """Return LogGroups from ``cursor`` on, in the order of arrival.

        :param read: decodes the decompressed answer; if it raises, the answer is damaged and is requested again.
        :param count: number of LogGroups, 1 to ``MAX_PULL_COUNT``; the server may return fewer.
        :param end: the cursor to stop before; None for no end.
        :param most_bytes: largest size of an answer, bytes after decompression; None for no limit.
        :raises AnswerTooLargeError: the answer is larger; it is not decompressed.
        """
        params = {"type": "log", "cursor": cursor, "count": str(count)}
        if end is not None:
            params["end_cursor"] = end

        def take(answer: Answer, headers: Mapping[str, str]) -> Page[_T]:
            following = headers["x-log-cursor"]
            size = raw_size_of(answer, headers)
            if most_bytes is not None and size > most_bytes:
                raise AnswerTooLargeError(
                    f"PullLogs of shard {shard} at {cursor}: the answer to a request for {counted(count, 'LogGroup')} "
                    f"has {counted(size, 'byte')} decompressed; the reader takes {most_bytes}: raise its limit"
                )
            return Page(read(body_of(answer, headers)), following, following in (cursor, end))

        question = Question(f"{self._path}/{shard}", params, headers=_PROTOBUF)
        return self._client.ask(f"PullLogs of shard {shard} at {cursor}", question, take)


def body_of(answer: Answer, headers: Mapping[str, str]) -> bytes:
    """Return the decompressed body of an answer.

    :raises CompressionError: it is damaged.
    """
    return decompress(answer.body, headers.get("x-log-compresstype", "none"), raw_size_of(answer, headers))


def raw_size_of(answer: Answer, headers: Mapping[str, str]) -> int:
    """Return the size of an answer after decompression, bytes, as the server declares it; no more is ever allocated."""
    return int(headers.get("x-log-bodyrawsize", len(answer.body)))
