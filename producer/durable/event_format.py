"""The format of a record in an event of a channel.

Headers name its stream: ``project``, ``logstore``, ``topic``, ``source``, ``shard_hash`` (which may be None) and
``tags``, a JSON list of pairs. An ordered or idempotent stream also has ``order`` (see
:class:`~producer.model.records.StreamKey`), and ``seqid``, the number of the record's batch, if the sender gave it.
``adopted`` marks an event that was moved (:data:`~producer.model.interfaces.ADOPTED_HEADER`). Other headers are
ignored. Credentials and endpoints are never among them. The body::

    8 bytes   the id of the producer that accepted the record, random
    8 bytes   its number there, big-endian: with the id before, a stable name of the record
    4 bytes   the number of logs, big-endian
    the rest  the logs, encoded as they will be sent

*Example.* The first record of a producer, of one log, 3 bytes long::

    5f 0c 3a 91 77 e2 08 b4  00 00 00 00 00 00 00 00  00 00 00 01  0a 01 2a
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from ..model.config import MAX_BATCH_COUNT, MAX_BATCH_SIZE_IN_BYTES
from ..model.interfaces import ADOPTED_HEADER, Event, Record
from ..model.records import ADOPTED, IDEMPOTENT, ORDERED, SEQUENCED, StreamKey
from ..model.sequence import MAX_NUMBER
from ..text.plural import counted

_HEAD = Struct(">8sQI")
#: The bytes of the id and the number, which together name a record.
IDENT_SIZE = 16
INSTANCE_SIZE = 8
#: From this size on, the record of an event is a view of its body, bytes.
_VIEWED = 4096
_STREAMS = 4096
#: The headers that name a stream, in the order of the parameters of :func:`_key`.
_NAMES = ("project", "logstore", "topic", "source", "shard_hash", "tags", "order")
_ORDER = re.compile(rf"{ORDERED}|{IDEMPOTENT}|{SEQUENCED}[0-9a-f]{{32}}:[0-9a-f]{{16}}")
_ADOPTED = re.compile(r"([0-9a-f]{16}):(\d{1,19})", re.ASCII)
_DIGITS = len(str(MAX_NUMBER))


class UnreadableEventError(ValueError):
    """Raised for an event that holds no record of a producer."""


class StoredRecord(NamedTuple):
    """The record of an event.

    :ivar key: the stream.
    :ivar ident: the stable name of the record.
    :ivar logs: the number of logs.
    :ivar record: the encoded logs.
    :ivar number: the number of its batch, if the sender gave it.
    :ivar position: its sequence number in the channel that it was adopted from, if its stream is idempotent.
    """

    key: StreamKey
    ident: bytes
    logs: int
    record: Record
    number: int | None = None
    position: int | None = None


def ident_of(instance: bytes, number: int) -> bytes:
    """Return the stable name of a record."""
    return instance + number.to_bytes(8, "big")


def number_of(ident: bytes) -> int:
    """Return the number of a record at the producer that accepted it."""
    return int.from_bytes(ident[INSTANCE_SIZE:], "big")


def numbered(number: int) -> dict[str, str]:
    """Return the header of a record whose batch got its number from the sender."""
    return {"seqid": str(number)}


def write_event(
    key: StreamKey, ident: bytes, logs: int, record: Record, more: Mapping[str, str] | None = None
) -> Event:
    """Return the event of a record.

    :param more: further headers.
    """
    headers = headers_of(key)
    return Event({**headers, **more} if more else headers, b"".join((ident, logs.to_bytes(4, "big"), record)))


@lru_cache(maxsize=_STREAMS)
def headers_of(key: StreamKey) -> dict[str, str | None]:
    """Return the headers that name a stream: one object, never changed, for all its events."""
    headers: dict[str, str | None] = {
        "project": key.project,
        "logstore": key.logstore,
        "topic": key.topic,
        "source": key.source,
        "shard_hash": key.shard_hash,
        "tags": json.dumps(key.tags, ensure_ascii=False, separators=(",", ":")),
    }
    if key.order:
        headers["order"] = IDEMPOTENT if key.order.startswith(ADOPTED) else str(key.order)
    return headers


def read_event(event: Event) -> StoredRecord:
    """Return the record of an event.

    :raises UnreadableEventError: the event holds no record, or one that no request could carry.
    """
    headers, body = event.headers, event.body
    if len(body) < _HEAD.size:
        raise UnreadableEventError(f"its body has {counted(len(body), 'byte')}, at least {_HEAD.size + 1} are needed")
    logs = int.from_bytes(body[IDENT_SIZE : _HEAD.size], "big")
    record = body[_HEAD.size :] if len(body) < _VIEWED else memoryview(body)[_HEAD.size :]
    if not 1 <= logs <= MAX_BATCH_COUNT or not 1 <= len(record) <= MAX_BATCH_SIZE_IN_BYTES:
        raise UnreadableEventError(
            f"{counted(logs, 'log')} in {counted(len(record), 'byte')}; a request carries 1 to {MAX_BATCH_COUNT} logs, "
            f"in at most {MAX_BATCH_SIZE_IN_BYTES} bytes"
        )
    key = _key(*map(headers.get, _NAMES))
    number = _number(headers.get("seqid")) if key.order.startswith(SEQUENCED) else None
    position = None
    if key.order == IDEMPOTENT and (adopted := headers.get(ADOPTED_HEADER)):
        origin, position = _adopted(adopted)
        key = key._replace(order=f"{ADOPTED}{origin}")
    return StoredRecord(key, body[:IDENT_SIZE], logs, record, number, position)


def _adopted(text: str) -> tuple[str, int]:
    found = _ADOPTED.fullmatch(text)
    if found is None:
        raise UnreadableEventError(
            f"its header {ADOPTED_HEADER} must be a channel's identity, a colon and a number, got {text!r:.100}"
        )
    return found[1], int(found[2])


def _number(text: str | None) -> int:
    if text is None or not text.isdecimal() or not 1 <= len(text) <= _DIGITS or not 1 <= int(text) <= MAX_NUMBER:
        raise UnreadableEventError(f"its seqid must be a number from 1 to {MAX_NUMBER}, got {text!r:.50}")
    return int(text)


@lru_cache(maxsize=_STREAMS)
def _key(
    project: str | None,
    logstore: str | None,
    topic: str | None,
    source: str | None,
    shard_hash: str | None,
    tags: str | None,
    order: str | None,
) -> StreamKey:
    if not project or not logstore:
        raise UnreadableEventError(f"its headers must name a stream, got project {project!r}, logstore {logstore!r}")
    try:
        pairs = json.loads(tags or "[]")
        read = tuple((name, value) for name, value in pairs)
    except (ValueError, TypeError) as error:
        raise UnreadableEventError(f"its tags must be a JSON list of pairs, got {tags!r:.200}") from error
    if not all(isinstance(text, str) for pair in read for text in pair):
        raise UnreadableEventError(f"its tags must be a JSON list of pairs of text, got {tags!r:.200}")
    if order and not _ORDER.fullmatch(order):
        raise UnreadableEventError(f"its order is unknown: {order!r:.100}")
    return StreamKey(project, logstore, topic or "", source or "", shard_hash, read, order or "")
