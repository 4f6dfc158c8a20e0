"""Format: encode and decode segment headers, records and events; the package's docstring describes the bytes.

These are pure functions: no files, no clock, no locks. The file is long because all bytes on disk are encoded and
decoded here.
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

try:  # not available for every platform; a third of the time of zlib's for a list of logs
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

MAGIC = b"LHSEGMNT"
#: The version of new segments; version 1 can be read.
VERSION = 2
MARKER = b"\xa7LH\x1e"

SECTOR = 512
#: Offset of the second copy of a segment's header.
SECOND_HEADER = SECTOR
_HEADER = struct.Struct("<8sHBBQQ16sdQ64s")
#: Fields of version 2, after the header's checksum, so that older packages can detect the newer version.
_ADDED = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
#: Size of one header copy, and offset of the first record, by version.
HEADER_SIZES = {1: _HEADER.size + 4, 2: _HEADER.size + 4 + _ADDED.size + 4}
FIRST_RECORDS = {version: SECOND_HEADER + size for version, size in HEADER_SIZES.items()}
#: The same, for the newest version.
HEADER_SIZE, FIRST_RECORD = HEADER_SIZES[VERSION], FIRST_RECORDS[VERSION]

_FRAME = struct.Struct("<4sIIB3xIQQ")
#: The part of a frame's head that the CRC covers.
_COVERED = struct.Struct("<IB3xIQQ")
_CRC = struct.Struct("<4sI")
FRAME_SIZE = _FRAME.size
CRC_FROM = 8
_COMMIT = struct.Struct("<IQd")
_ROLLBACK = struct.Struct("<QQ")
COMMIT_SIZE = _COMMIT.size
#: Flag in a Commit's transaction field: the commit did not wait for the disk.
HOLDS_ONCE_WRITTEN = 1 << 63
ROLLBACK_SIZE = _ROLLBACK.size
_HEADER_LENGTHS = struct.Struct("<HI")
_LENGTH = struct.Struct("<I")
_NO_VALUE = 0xFFFFFFFF
_MAX_NAME = 0xFFFF

#: Largest payload of a record, bytes.
MAX_PAYLOAD = 1 << 30

#: Largest part to checksum at a time, bytes. Both CRC functions release the GIL for more, and may wait 5 ms to get it
#: back, a thousand times as long as the checksum takes.
AT_ONCE = 5 * 1024
#: From this size on, bytes, the checksum takes long enough to release the GIL.
LARGE = 256 * 1024

#: Cached headers, which repeat, as bytes and as mappings.
_CACHED = 1024
#: From this size on, bytes, a body is joined to its headers only when written.
_PARTED = 4096
_CACHEABLE = 4096


class Kind(enum.IntEnum):
    """The type of a record."""

    PUT = 1
    TAKE = 2
    COMMIT = 3
    ROLLBACK = 4
    GAP = 5
    LIVE = 6


#: A plain number packs and compares faster than an enum member.
_PUT = Kind.PUT.value


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """Header of a segment.

    :ivar number: its number, increasing.
    :ivar first_sequence: the sequence number of its first Put, or of the next Put if it has none.
    :ivar salt: 16 random bytes, mixed into every CRC and every key of the segment.
    :ivar created: seconds since the epoch.
    :ivar newest_transaction: the newest transaction at its creation: up to it, earlier segments are not torn, or that
        does not matter.
    :ivar key_id: the id of its encryption key; None if it is plain.
    :ivar void_from: a pointer: records from there up to this segment are void; 0 for none.
    :ivar version: the version of the format.
    """

    number: int
    first_sequence: int
    salt: bytes
    created: float
    newest_transaction: int = 0
    key_id: str | None = None
    void_from: int = 0
    version: int = VERSION

    @property
    def seed(self) -> int:
        """Return the start value of every CRC of the segment."""
        return crc32(self.salt)

    @property
    def first_record(self) -> int:
        """Return the offset of the first record."""
        return FIRST_RECORDS[self.version]


class UnknownVersionError(Exception):
    """Raised when a segment has an unknown version, given in ``args[0]``."""


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Encode both copies of the header: all bytes before the first record."""
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
        header.newest_transaction,
        key_id,
    )
    copy += _CHECKSUM.pack(crc32(copy))
    if header.version > 1:
        copy += _ADDED.pack(header.void_from)
        copy += _CHECKSUM.pack(crc32(copy))
    return copy.ljust(SECOND_HEADER, b"\0") + copy


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """Decode the header at the start of ``data``, from a valid copy; None if neither is.

    :raises UnknownVersionError: a valid copy has an unknown version.
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
    """True if the ``size`` bytes at ``offset`` are followed by their checksum."""
    end = offset + size
    if len(data) < end + _CHECKSUM.size:
        return False
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    return bool(checksum == crc32(memoryview(data)[offset:end]))


def encode_record(seed: int, kind: int, remaining: int, sequence: int, transaction: int, payload: bytes) -> bytes:
    """Encode one record.

    :param seed: the segment's CRC start value.
    :param remaining: number of records of the same transaction that follow.
    """
    return encode_head(seed, kind, remaining, sequence, transaction, payload) + payload


def encode_head(seed: int, kind: int, remaining: int, sequence: int, transaction: int, payload: bytes) -> bytes:
    """Encode the bytes before the payload of a record."""
    covered = _COVERED.pack(len(payload), kind, remaining, sequence, transaction)
    return _CRC.pack(MARKER, checksum(payload, crc32(covered, seed))) + covered


class Parted:
    """Payload of a Put with a large body, which is joined to its headers only when written.

    A copy kept in memory would cost more than all other work for an event.
    """

    __slots__ = ("_size", "block", "body")

    def __init__(self, block: bytes, body: bytes) -> None:
        self.block, self.body, self._size = block, body, len(block) + len(body)

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self.block + self.body


#: Payload of a Put to write.
PutPayload: TypeAlias = bytes | Parted


def encode_records(
    seed: int, first: int, transaction: int, puts: Sequence[PutPayload], others: Sequence[tuple[int, bytes]]
) -> tuple[bytes, list[int]]:
    """Encode the records of a transaction; return the bytes and the size of each Put.

    :param first: sequence number of the first Put.
    :param puts: payloads of its Puts, which come first.
    :param others: kind and payload of each later record, the Commit last.
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
    """Return the CRC-32 of ``data``, continued from ``start``; small data keep the GIL."""
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
    """Return the payload of the Put at ``offset``, a part of ``data``; None if it is not there or damaged.

    :param view: a view of all of ``data``.
    :param size: the size of the payload.
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
    """Return marker, CRC, length, kind, remaining, sequence and transaction of a frame, unchecked."""
    return _FRAME.unpack_from(data, offset)


def encode_commit(records: int, synced: int, time: float) -> bytes:
    """Encode the payload of a Commit.

    :param records: number of records before it.
    :param synced: the newest transaction known to be on the disk, plus :data:`HOLDS_ONCE_WRITTEN` if commits do not
        wait.
    :param time: seconds since the epoch.
    """
    return _COMMIT.pack(records, synced, time)


def decode_commit(payload: bytes) -> tuple[int, int, float, bool]:
    """Decode the payload of a Commit; the last value is True if the commit did not wait for the disk."""
    records, synced, time = _COMMIT.unpack(payload)
    return records, synced & ~HOLDS_ONCE_WRITTEN, time, bool(synced & HOLDS_ONCE_WRITTEN)


def encode_rollback(first: int, last: int) -> bytes:
    """Encode the payload of a Rollback: the range of void sequence numbers; none if ``last`` < ``first``."""
    return _ROLLBACK.pack(first, last)


def decode_rollback(payload: bytes) -> tuple[int, int]:
    """Decode the payload of a Rollback."""
    return _ROLLBACK.unpack(payload)


@dataclass(frozen=True, slots=True)
class Live:
    """List of the events that were in the channel when all transactions up to one had ended.

    :ivar transaction: that transaction.
    :ivar sequence: the sequence number of the first event put after it.
    :ivar firsts: the first number of each range of live events, increasing.
    :ivar lasts: the last number of each range.
    """

    transaction: int
    sequence: int
    firsts: Sequence[int] = ()
    lasts: Sequence[int] = ()

    def has(self, sequence: int) -> bool:
        """True if this event was live, or was put later."""
        place = bisect_right(self.firsts, sequence)
        return sequence >= self.sequence or (place > 0 and sequence <= self.lasts[place - 1])


def encode_live(live: Live) -> bytes:
    """Encode the payload of a Live."""
    ends = [end for ends in zip(live.firsts, live.lasts, strict=True) for end in ends]
    return struct.pack(f"<{2 + len(ends)}Q", live.transaction, live.sequence, *ends)


def decode_live(payload: bytes) -> Live:
    """Decode the payload of a Live."""
    numbers = struct.unpack(f"<{len(payload) // 8}Q", payload)
    return Live(numbers[0], numbers[1], numbers[2::2], numbers[3::2])


def encode_gap(seed: int, sequence: int, transaction: int, size: int) -> bytes:
    """Encode a record that fills ``size`` damaged bytes; its payload is not zeros, which would look unwritten."""
    return encode_record(seed, Kind.GAP, 0, sequence, transaction, b"\xff" * (size - FRAME_SIZE))


_blocks: dict[tuple[tuple[str, str | None], ...], bytes] = {}
_NO_HEADERS = _LENGTH.pack(0)
_mappings: dict[bytes, Mapping[str, str | None]] = {}
_EMPTY: Mapping[str, str | None] = MappingProxyType({})


def encode_event(event: Event) -> PutPayload:
    """Encode the payload of a Put.

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
            f"put: an event of {len(block) - 4 + len(body)} bytes is too large, at most {MAX_PAYLOAD - 64} bytes fit"
        )
    return block + body if len(body) < _PARTED else Parted(block, body)


def encode_events(events: Iterable[Event]) -> list[PutPayload]:
    """Encode the payload of each event."""
    return [encode_event(event) for event in events]


def _as_bytes(body: object) -> bytes:
    if body is None:
        return b""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise InvalidArgumentError(f"put: the body must be bytes, got {type(body).__qualname__}")


def encode_headers(headers: Mapping[str, str | None]) -> bytes:
    """Encode headers, preceded by their length."""
    try:
        key = tuple(headers.items())
    except AttributeError:
        raise InvalidArgumentError(f"put: headers must be a mapping, got {type(headers).__qualname__}") from None
    try:
        block = _blocks.get(key)
    except TypeError:  # an unhashable value, refused below
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
        raise InvalidArgumentError(f"put: the name of a header has {len(encoded)} bytes, at most {_MAX_NAME} fit")
    if value is None:
        return _HEADER_LENGTHS.pack(len(encoded), _NO_VALUE) + encoded
    text = value.encode("utf-8", "surrogatepass")
    return _HEADER_LENGTHS.pack(len(encoded), len(text)) + encoded + text


def decode_event(payload: PutPayload | memoryview, sequence: int) -> Event:
    """Decode the payload of a Put.

    :raises ValueError: the bytes are not one.
    """
    if isinstance(payload, Parted):
        block = payload.block[4:]
        return Event(_mappings.get(block) or decode_headers(block), payload.body, sequence)
    try:
        end = 4 + _LENGTH.unpack_from(payload)[0]
        if end > len(payload):
            raise ValueError("the headers extend beyond the event")
        if payload.__class__ is bytes:
            if end == 4:
                return Event(_EMPTY, payload[4:], sequence)
            block = payload[4:end]
            return Event(_mappings.get(block) or decode_headers(block), payload[end:], sequence)
        return Event(decode_headers(bytes(payload[4:end])), bytes(payload[end:]), sequence)
    except struct.error as error:
        raise ValueError(str(error)) from error


def damaged_headers(payload: bytes | memoryview) -> Mapping[str, str | None] | None:
    """Decode the headers of a damaged Put, unverified; None if they cannot be decoded."""
    try:
        end = 4 + _LENGTH.unpack_from(payload)[0]
        return decode_headers(bytes(payload[4:end])) if end <= len(payload) else None
    except (struct.error, ValueError):
        return None


def decode_events(payloads: Sequence[PutPayload], sequences: Iterable[int]) -> list[Event]:
    """Decode the payload of each Put."""
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
                raise ValueError("a header extends beyond the end of the headers")
            headers[name] = None if length == _NO_VALUE else value.decode("utf-8", "surrogatepass")
            offset += size
        mapping = MappingProxyType(headers)
        if len(block) <= _CACHEABLE:
            if len(_mappings) >= _CACHED:
                _mappings.clear()
            _mappings[block] = mapping
    return mapping
