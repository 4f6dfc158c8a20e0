"""LogGroups in their three forms: the body of a request, a row of the store, and a reader's object."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from ...text.plural import counted
from ...wire.compression import compress, decompress
from ...wire.reserved import free_name
from ...wire.schema import LogGroup, StrictText
from ..errors import ApiError
from ..limits import Limits

PACK_ID_TAG = "__pack_id__"
# SQLite's integers have 63 bits and a sign.
_PACK_ID = re.compile(r"(.{1,256})-([0-9A-Fa-f]{1,15})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGroup:
    """A validated LogGroup, ready for the store.

    :ivar raw_size: encoded bytes, before compression.
    :ivar count: number of logs.
    :ivar topic: the topic, or an empty string.
    :ivar min_time: the earliest time of its logs, Unix seconds.
    :ivar max_time: the latest time of its logs, Unix seconds.
    :ivar packed: the encoded bytes as one lz4 block, the store's form.
    :ivar context: the part of the pack id shared by one sender's LogGroups of a stream, or None.
    :ivar pack: the number in the pack id, which counts these LogGroups, or None.
    """

    raw_size: int
    count: int
    topic: str
    min_time: int
    max_time: int
    packed: bytes
    context: str | None = None
    pack: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    """One stored log.

    :ivar time: Unix seconds.
    :ivar time_ns: the nanosecond part of the time, 0 when none was sent.
    :ivar contents: pairs of key and value in the order sent; a value that is not UTF-8 is ``bytes``.
    :ivar topic: topic of its LogGroup.
    :ivar source: source of its LogGroup.
    :ivar tags: tags of its LogGroup.
    :ivar shard: its shard.
    :ivar position: position of its LogGroup in the shard.
    """

    time: int
    time_ns: int
    contents: list[tuple[str, str | bytes]]
    topic: str
    source: str
    tags: dict[str, str]
    shard: int
    position: int

    @property
    def fields(self) -> dict[str, str | bytes]:
        """Return the contents as a mapping, with the last value of a repeated key."""
        return dict(self.contents)

    @property
    def pack_id(self) -> str | None:
        """Return the pack id of its LogGroup, or None."""
        return self.tags.get(PACK_ID_TAG)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLogGroup:
    """One stored LogGroup.

    :ivar shard: its shard.
    :ivar position: its position in the shard, from 0, in order of arrival.
    :ivar received: time of storing, Unix seconds by the server's clock; never decreases within a shard.
    :ivar raw: the encoded bytes as sent (before compression).
    :ivar count: number of logs.
    """

    shard: int
    position: int
    received: float
    raw: bytes
    count: int

    @property
    def topic(self) -> str:
        """Return the topic, or an empty string."""
        return str(parse_group(self.raw).Topic)

    @property
    def source(self) -> str:
        """Return the source, or an empty string."""
        return str(parse_group(self.raw).Source)

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags."""
        return _tags(parse_group(self.raw))

    @property
    def pack_id(self) -> str | None:
        """Return the pack id, or None."""
        return self.tags.get(PACK_ID_TAG)

    @property
    def logs(self) -> list[StoredLog]:
        """Return the logs, in the order sent."""
        return list(self.iter_logs())

    def iter_logs(self) -> Iterator[StoredLog]:
        """Yield the logs."""
        group = parse_group(self.raw)
        shared = (str(group.Topic), str(group.Source), _tags(group))
        for log in group.Logs:
            contents = [(content.Key, _text(content.Value)) for content in log.Contents]
            yield self._log(log, contents, *shared)

    def scan(self) -> Iterator[tuple[int, int, Iterator[tuple[str, str]]]]:
        """Yield for each log its time, its nanoseconds, and its searchable keys and texts.

        A log can have a million contents, so they are decoded as they are read.
        """
        group = parse_group(self.raw)
        shared = [("__topic__", str(group.Topic)), ("__source__", str(group.Source))]
        shared += [(f"__tag__:{key}", value) for key, value in _tags(group).items()]
        for log in group.Logs:
            yield log.Time, log.Time_ns, itertools.chain(shared, _texts(log))

    def _log(
        self, log: Any, contents: list[tuple[str, str | bytes]], topic: str, source: str, tags: dict[str, str]
    ) -> StoredLog:
        return StoredLog(
            time=log.Time,
            time_ns=log.Time_ns,
            contents=contents,
            topic=topic,
            source=source,
            tags=tags,
            shard=self.shard,
            position=self.position,
        )


def check_group(raw: bytes, limits: Limits) -> CheckedGroup:
    """Validate one LogGroup.

    :param raw: its encoded bytes.
    :raises ApiError: ``PostBodyInvalid`` (no LogGroup, no logs, or too many), ``InvalidEncoding`` (text that is not
        UTF-8).
    """
    # One step after the other: decoding a body of tiny parts takes twenty times its size.
    facts = _read_facts(raw, limits)
    _check_text(raw)
    return CheckedGroup(**facts, raw_size=len(raw), packed=pack(raw))


def _read_facts(raw: bytes, limits: Limits) -> dict[str, Any]:
    try:
        group = parse_group(raw)
    except DecodeError as error:
        raise ApiError(
            "PostBodyInvalid", f"the body of {counted(len(raw), 'byte')} is not a LogGroup: {error}"
        ) from error
    count = len(group.Logs)
    if not 1 <= count <= limits.logs:
        raise ApiError("PostBodyInvalid", f"the LogGroup has {counted(count, 'log')}: 1 to {limits.logs} are allowed")
    times = [log.Time for log in group.Logs]
    context, pack = split_pack_id(_tags(group).get(PACK_ID_TAG, "")) or (None, None)
    return {
        "count": count,
        "topic": group.Topic,
        "min_time": min(times),
        "max_time": max(times),
        "context": context,
        "pack": pack,
    }


def split_pack_id(pack_id: str) -> tuple[str, int] | None:
    """Split a pack id: ``AB12-1F`` has the context ``AB12`` and the number 0x1F. None for another form."""
    match = _PACK_ID.fullmatch(pack_id)
    return None if match is None else (match[1], int(match[2], 16))


def parse_group(raw: bytes) -> Any:
    """Decode a LogGroup.

    :raises DecodeError: it is not a LogGroup, or lacks a required field.
    """
    group = LogGroup()
    group.ParseFromString(raw)
    if not group.IsInitialized():
        # The library's message would name every missing field, and there may be any number.
        raise DecodeError("a log has no Time, or a content or a tag has no Key or no Value")
    return group


def pack(raw: bytes) -> bytes:
    """Compress encoded bytes for the store."""
    return compress(raw, "lz4")


def unpack(packed: bytes, raw_size: int) -> bytes:
    """Undo :func:`pack`."""
    return decompress(packed, "lz4", raw_size)


def _check_text(raw: bytes) -> None:
    try:
        StrictText().ParseFromString(raw)
    except DecodeError as error:
        raise ApiError(
            "InvalidEncoding",
            "a key, tag, topic or source of the LogGroup is not UTF-8: encode it (values may be any bytes)",
        ) from error


def _tags(group: Any) -> dict[str, str]:
    return {tag.Key: tag.Value for tag in group.LogTags}


def _texts(log: Any) -> Iterator[tuple[str, str]]:
    for content in log.Contents:
        yield free_name(content.Key), content.Value.decode(errors="replace")


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
