"""Bytes of the log: headers of segments, records, events. The format itself is told in the package's docstring.

Pure functions: no files, no clock, no locks. The file is long because all bytes on disk are read and written here.
"""

from __future__ import annotations

import enum
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from ....model.errors import InvalidArgumentError
from ....model.interfaces import Event

try:  # not for every kind of machine; of a list of logs it takes a third of the time
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

MAGIC = b"LHSEGMNT"
#: What new segments are; those of version 1 are read.
VERSION = 2
MARKER = b"\xa7LH\x1e"

SECTOR = 512
#: Where the second copy of a segment's header begins.
SECOND_HEADER = SECTOR
_HEADER = struct.Struct("<8sHBBQQ16sdQ64s")
#: What version 2 adds, behind the header's checksum, so that older packages can tell that they do not know it.
_ADDED = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
#: Bytes of one copy, and where the records begin, by version.
HEADER_SIZES = {1: _HEADER.size + 4, 2: _HEADER.size + 4 + _ADDED.size + 4}
FIRST_RECORDS = {version: SECOND_HEADER + size for version, size in HEADER_SIZES.items()}
#: Of the newest version.
HEADER_SIZE, FIRST_RECORD = HEADER_SIZES[VERSION], FIRST_RECORDS[VERSION]

_FRAME = struct.Struct("<4sIIB3xIQQ")
#: What the CRC covers of a frame's head.
_COVERED = struct.Struct("<IB3xIQQ")
_CRC = struct.Struct("<4sI")
FRAME_SIZE = _FRAME.size
CRC_FROM = 8
_COMMIT = struct.Struct("<IQd")
_ROLLBACK = struct.Struct("<QQ")
COMMIT_SIZE = _COMMIT.size
#: Added to the transaction that a Commit names: its own held as soon as it was written, without waiting for the disk.
HOLDS_ONCE_WRITTEN = 1 << 63
ROLLBACK_SIZE = _ROLLBACK.size
_HEADER_LENGTHS = struct.Struct("<HI")
_LENGTH = struct.Struct("<I")
_NO_VALUE = 0xFFFFFFFF
_MAX_NAME = 0xFFFF

#: The most that one record may hold, bytes.
MAX_PAYLOAD = 1 << 30

#: Either one lets other threads run meanwhile if it is given more, and gets its turn back up to 5 ms later: a thousand
#: times what the checksum takes.
AT_ONCE = 5 * 1024
#: From so many bytes on the checksum takes long enough that others should run.
LARGE = 256 * 1024

#: Headers repeat: those of the last streams are kept as bytes, and as mappings.
_CACHED = 1024
#: From so many bytes on a body is not joined to its headers before it is written.
_PARTED = 4096
_CACHEABLE = 4096


class Kind(enum.IntEnum):
    """What a record says."""

    PUT = 1
    TAKE = 2
    COMMIT = 3
    ROLLBACK = 4
    GAP = 5
    LIVE = 6


#: As a plain number, which is packed and compared more quickly.
_PUT = Kind.PUT.value


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says of itself.

    :ivar number: its number, increasing.
    :ivar first_sequence: the sequence number that its first Put has, or would have.
    :ivar salt: 16 random bytes, mixed into every CRC and every key of the segment.
    :ivar created: seconds since the epoch.
    :ivar went_past: the transaction up to which what stands in earlier segments is not torn, or does not matter.
    :ivar key_id: names the key of an encrypted segment; None if it is not.
    :ivar void_from: a pointer: what stands from there on, up to this segment, does not count; 0 if all counts.
    :ivar version: of the format.
    """

    number: int
    first_sequence: int
    salt: bytes
    created: float
    went_past: int = 0
    key_id: str | None = None
    void_from: int = 0
    version: int = VERSION

    @property
    def seed(self) -> int:
        """Where every CRC of the segment begins."""
        return crc32(self.salt)

    @property
    def first_record(self) -> int:
        """Where its records begin."""
        return FIRST_RECORDS[self.version]


class UnknownVersionError(Exception):
    """A segment of a version that this code does not know; ``args[0]`` is the version."""


def encode_segment_header(header: SegmentHeader) -> bytes:
    """The bytes before the first record: both copies."""
    key_id = (header.key_id or "").encode()
    copy = _HEADER.pack(
        MAGIC,
        header.version,
        0 if header.key_id is None else 1,
        len(key_id),
        header.number,
        header.first_sequence,
        header.salt,
        header.created,
        header.went_past,
        key_id,
    )
    copy += _CHECKSUM.pack(crc32(copy))
    if header.version > 1:
        copy += _ADDED.pack(header.void_from)
        copy += _CHECKSUM.pack(crc32(copy))
    return copy.ljust(SECOND_HEADER, b"\0") + copy


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """The header at the beginning of ``data``, from whichever copy is whole; None if neither is.

    :raises UnknownVersionError: a whole copy says that it is of another version.
    """
    for offset in (0, SECOND_HEADER):
        if not (data.startswith(MAGIC, offset) and _checks_out(data, offset, _HEADER.size)):
            continue
        _, version, cipher, length, number, first, salt, created, past, key_id = _HEADER.unpack_from(data, offset)
        if version not in HEADER_SIZES or cipher > 1:
            raise UnknownVersionError(version)
        void_from = 0
        if version > 1:
            if not _checks_out(data, offset, HEADER_SIZES[1] + _ADDED.size):
                continue
            (void_from,) = _ADDED.unpack_from(data, offset + HEADER_SIZES[1])
        key = key_id[:length].decode() if cipher else None
        return SegmentHeader(number, first, salt, created, past, key, void_from, version)
    return None


def _checks_out(data: bytes, offset: int, size: int) -> bool:
    """Whether the ``size`` bytes at ``offset`` are followed by their checksum."""
    end = offset + size
    if len(data) < end + _CHECKSUM.size:
        return False
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    return bool(checksum == crc32(memoryview(data)[offset:end]))


def encode_record(seed: int, kind: int, remaining: int, sequence: int, transaction: int, payload: bytes) -> bytes:
    """One frame.

    :param seed: the segment's.
    :param remaining: records of the same transaction that follow.
    """
    return encode_head(seed, kind, remaining, sequence, transaction, payload) + payload


def encode_head(seed: int, kind: int, remaining: int, sequence: int, transaction: int, payload: bytes) -> bytes:
    """What stands before the payload in a frame."""
    covered = _COVERED.pack(len(payload), kind, remaining, sequence, transaction)
    return _CRC.pack(MARKER, checksum(payload, crc32(covered, seed))) + covered


class Parted:
    """The payload of a Put with a large body, which is joined to its headers only where it is written: a copy that is
    kept costs more than all else that is done for an event.
    """

    __slots__ = ("_size", "block", "body")

    def __init__(self, block: bytes, body: bytes) -> None:
        self.block, self.body, self._size = block, body, len(block) + len(body)

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self.block + self.body


#: The payload of a Put that is to be written.
PutPayload: TypeAlias = bytes | Parted


def encode_records(
    seed: int, first: int, transaction: int, puts: Sequence[PutPayload], others: Sequence[tuple[int, bytes]]
) -> tuple[bytes, list[int]]:
    """The records of a transaction, joined, and the size of each Put.

    :param first: sequence number of the first Put.
    :param puts: payloads of its Puts, which come first.
    :param others: what follows them: kind and payload of each, the Commit at last.
    """
    pack, head, pieces, sizes = _COVERED.pack, _CRC.pack, list[bytes](), list[int]()
    remaining = len(puts) + len(others)
    for sequence, payload in enumerate(puts, first):
        remaining -= 1
        size = len(payload)
        covered = pack(size, _PUT, remaining, sequence, transaction)
        parts = (payload.block, payload.body) if isinstance(payload, Parted) else (payload,)
        crc = crc32(covered, seed)
        for part in parts:
            crc = checksum(part, crc)
        pieces += (head(MARKER, crc), covered, *parts)
        sizes.append(FRAME_SIZE + size)
    last = first + len(puts) - 1
    for kind, payload in others:
        remaining -= 1
        pieces += (encode_head(seed, kind, remaining, last, transaction, payload), payload)
    return b"".join(pieces), sizes


def checksum(data: bytes | memoryview, start: int) -> int:
    """The CRC-32 of ``data``, begun at ``start``; a small one without a change of threads."""
    size = len(data)
    if size <= AT_ONCE or size >= LARGE:
        return crc32(data, start)
    view = memoryview(data)
    for at in range(0, size, AT_ONCE):
        start = crc32(view[at : at + AT_ONCE], start)
    return start


def put_at(
    data: bytes | memoryview, view: memoryview, offset: int, size: int, sequence: int, seed: int
) -> bytes | memoryview | None:
    """The payload of the Put at ``offset``, a part of ``data``; None if it does not stand there, whole and undamaged.

    :param view: of all of ``data``.
    :param size: of the payload.
    """
    start = offset + FRAME_SIZE
    stop = start + size
    if stop > len(view):
        return None
    marker, crc, length, kind, _, number, _ = _FRAME.unpack_from(data, offset)
    if marker != MARKER or length != size or kind != _PUT or number != sequence:
        return None
    covered = view[offset + CRC_FROM : stop]
    if (crc32 if size < AT_ONCE - FRAME_SIZE else checksum)(covered, seed) != crc:
        return None
    return data[start:stop]


def decode_frame(data: bytes | memoryview, offset: int) -> tuple[bytes, int, int, int, int, int, int]:
    """Marker, CRC, length, kind, remaining, sequence and transaction of the frame at ``offset``; nothing is checked."""
    return _FRAME.unpack_from(data, offset)


def encode_commit(records: int, synced: int, time: float) -> bytes:
    """The payload of a Commit: records before it, the newest transaction known to be on the disk, seconds.

    :param synced: with :data:`HOLDS_ONCE_WRITTEN` added where commits do not wait for the disk.
    """
    return _COMMIT.pack(records, synced, time)


def decode_commit(payload: bytes) -> tuple[int, int, float, bool]:
    """Read what :func:`encode_commit` wrote; at the end, True if the transaction held once it was written."""
    records, synced, time = _COMMIT.unpack(payload)
    return records, synced & ~HOLDS_ONCE_WRITTEN, time, bool(synced & HOLDS_ONCE_WRITTEN)


def encode_rollback(first: int, last: int) -> bytes:
    """The payload of a Rollback: the sequence numbers that the voided transaction had used; none if last < first."""
    return _ROLLBACK.pack(first, last)


def decode_rollback(payload: bytes) -> tuple[int, int]:
    """See :func:`encode_rollback`."""
    return _ROLLBACK.unpack(payload)


@dataclass(frozen=True, slots=True)
class Live:
    """Which events were in the channel once all transactions up to one had been committed, or had failed.

    :ivar transaction: that one.
    :ivar sequence: of the first event put after it.
    :ivar firsts: of each range of sequence numbers of events that lived, the first, increasing.
    :ivar lasts: of each range the last.
    """

    transaction: int
    sequence: int
    firsts: Sequence[int] = ()
    lasts: Sequence[int] = ()

    def has(self, sequence: int) -> bool:
        """Whether it says nothing of this event, or that it lived."""
        place = bisect_right(self.firsts, sequence)
        return sequence >= self.sequence or (place > 0 and sequence <= self.lasts[place - 1])


def encode_live(live: Live) -> bytes:
    """The payload of a Live."""
    ends = [end for ends in zip(live.firsts, live.lasts, strict=True) for end in ends]
    return struct.pack(f"<{2 + len(ends)}Q", live.transaction, live.sequence, *ends)


def decode_live(payload: bytes) -> Live:
    """See :func:`encode_live`."""
    numbers = struct.unpack(f"<{len(payload) // 8}Q", payload)
    return Live(numbers[0], numbers[1], numbers[2::2], numbers[3::2])


def encode_gap(seed: int, sequence: int, transaction: int, size: int) -> bytes:
    """A record that fills ``size`` bytes, in which damage was; its payload is no zeros, which would look unwritten."""
    return encode_record(seed, Kind.GAP, 0, sequence, transaction, b"\xff" * (size - FRAME_SIZE))


_blocks: dict[tuple[tuple[str, str | None], ...], bytes] = {}
_NO_HEADERS = _LENGTH.pack(0)
_mappings: dict[bytes, Mapping[str, str | None]] = {}
_EMPTY: Mapping[str, str | None] = MappingProxyType({})


def encode_event(event: Event) -> PutPayload:
    """The payload of a Put.

    :raises InvalidArgumentError: not an event, or one that cannot be stored.
    """
    try:
        headers, body = event.headers, event.body
    except AttributeError:
        raise InvalidArgumentError(f"put: an Event is needed, got {type(event).__qualname__}") from None
    block = encode_headers(headers) if headers else _NO_HEADERS
    if body.__class__ is not bytes:
        body = _as_bytes(body)
    if len(block) + len(body) > MAX_PAYLOAD - 60:
        raise InvalidArgumentError(
            f"put: an event of {len(block) - 4 + len(body)} bytes; at most {MAX_PAYLOAD - 64} fit"
        )
    return block + body if len(body) < _PARTED else Parted(block, body)


def encode_events(events: Iterable[Event]) -> list[PutPayload]:
    """The payload of each, as :func:`encode_event` makes it."""
    return [encode_event(event) for event in events]


def _as_bytes(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidArgumentError(f"put: the body must be bytes, got {type(body).__qualname__}")


def encode_headers(headers: Mapping[str, str | None]) -> bytes:
    """Their length, and they."""
    try:
        key = tuple(headers.items())
    except AttributeError:
        raise InvalidArgumentError(f"put: headers must be a mapping, got {type(headers).__qualname__}") from None
    try:
        block = _blocks.get(key)
    except TypeError:  # an unhashable value, which cannot be a header
        block = None
    if block is None:
        block = b"".join([_encode_header(name, value) for name, value in key])
        block = _LENGTH.pack(len(block)) + block
        if len(block) <= _CACHEABLE:
            if len(_blocks) >= _CACHED:
                _blocks.clear()
            _blocks[key] = block
    return block


def _encode_header(name: object, value: object) -> bytes:
    if not isinstance(name, str) or not (value is None or isinstance(value, str)):
        wrong = type(value if isinstance(name, str) else name).__qualname__
        raise InvalidArgumentError(f"put: headers map text to text or None, got {wrong} in {name!r}")
    encoded = name.encode("utf-8", "surrogatepass")
    if len(encoded) > _MAX_NAME:
        raise InvalidArgumentError(f"put: the name of a header has {len(encoded)} bytes; at most {_MAX_NAME} fit")
    if value is None:
        return _HEADER_LENGTHS.pack(len(encoded), _NO_VALUE) + encoded
    text = value.encode("utf-8", "surrogatepass")
    return _HEADER_LENGTHS.pack(len(encoded), len(text)) + encoded + text


def decode_event(payload: PutPayload | memoryview, sequence: int) -> Event:
    """See :func:`encode_event`.

    :raises ValueError: not the payload of a Put.
    """
    if isinstance(payload, Parted):
        block = payload.block[4:]
        return Event(_mappings.get(block) or decode_headers(block), payload.body, sequence)
    try:
        end = 4 + _LENGTH.unpack_from(payload)[0]
        if end > len(payload):
            raise ValueError("the headers reach beyond the event")
        if payload.__class__ is bytes:
            if end == 4:
                return Event(_EMPTY, payload[4:], sequence)
            block = payload[4:end]
            return Event(_mappings.get(block) or decode_headers(block), payload[end:], sequence)
        return Event(decode_headers(bytes(payload[4:end])), bytes(payload[end:]), sequence)
    except struct.error as error:
        raise ValueError(str(error)) from error


def headers_left(payload: bytes | memoryview) -> Mapping[str, str | None] | None:
    """What the headers in a damaged payload of a Put seem to be: nothing tells whether they are whole. None if they
    cannot even be read.
    """
    try:
        end = 4 + _LENGTH.unpack_from(payload)[0]
        return decode_headers(bytes(payload[4:end])) if end <= len(payload) else None
    except (struct.error, ValueError):
        return None


def decode_events(payloads: Sequence[PutPayload], sequences: Iterable[int]) -> list[Event]:
    """The event of each, as :func:`decode_event` makes it."""
    return list(map(decode_event, payloads, sequences))


def decode_headers(block: bytes) -> Mapping[str, str | None]:
    mapping = _mappings.get(block)
    if mapping is None:
        headers: dict[str, str | None] = {}
        offset = 0
        while offset < len(block):
            name_length, length = _HEADER_LENGTHS.unpack_from(block, offset)
            offset += _HEADER_LENGTHS.size
            name = block[offset : offset + name_length].decode("utf-8", "surrogatepass")
            offset += name_length
            size = 0 if length == _NO_VALUE else length
            value = block[offset : offset + size]
            if len(value) < size:
                raise ValueError("a header reaches beyond the others")
            headers[name] = None if length == _NO_VALUE else value.decode("utf-8", "surrogatepass")
            offset += size
        mapping = MappingProxyType(headers)
        if len(block) <= _CACHEABLE:
            if len(_mappings) >= _CACHED:
                _mappings.clear()
            _mappings[block] = mapping
    return mapping
