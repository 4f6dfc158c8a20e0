"""Format: the bytes of the log as documented; Flume's TestTransactionEventRecord*."""

import os
import random
import re
import struct
import zlib
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import producer.channels.file as package
from producer.channels import Event
from producer.channels.file.store import format as format_
from producer.channels.file.store.format import (
    FIRST_RECORD,
    FRAME_SIZE,
    HEADER_SIZE,
    HEADER_SIZES,
    HOLDS_ONCE_WRITTEN,
    MAGIC,
    MARKER,
    SECOND_HEADER,
    VERSION,
    Kind,
    Live,
    SegmentHeader,
    UnknownVersionError,
    checksum,
    decode_commit,
    decode_event,
    decode_frame,
    decode_live,
    decode_rollback,
    decode_segment_header,
    encode_commit,
    encode_event,
    encode_live,
    encode_record,
    encode_records,
    encode_rollback,
    encode_segment_header,
    put_at,
)
from producer.channels.file.store.segment import Damage, Record, scan
from producer.model.errors import InvalidArgumentError
from producer.testing import ManualClock
from tests.channels.file.opening import end_of, log, open_channel, segments
from tests.channels.helpers import put, take
from tests.support.sim_fs import SimFS

SALT = bytes(range(16))
HEADER = SegmentHeader(7, 42, SALT, 1_700_000_000.5, 99)


def test_a_channel_writes_the_bytes_of_the_documented_example() -> None:
    """A channel writes the bytes of the documented example."""
    rows = re.findall(r"offset (\d+) +(\w+) +seq (\d) +tx (\d) +\+(\d)  (.*)", package.__doc__ or "")
    assert len(rows) == 5
    disk, clock = SimFS(), ManualClock(1_700_000_000.0)
    with open_channel(disk, clock=clock) as channel:
        put(channel, "a", "b")
        take(channel)
        (path,) = segments(disk)
        for record, (offset, name, sequence, transaction, remaining, what) in zip(log(disk), rows, strict=True):
            assert record.offset == int(offset)
            assert Kind(record.kind).name == name.upper()
            assert (record.sequence, record.transaction) == (int(sequence), int(transaction))
            assert record.remaining == int(remaining)
            if name == "Commit":
                told = re.fullmatch(r"(\d) records?, on disk: tx (\d), time", what)
                assert told
                assert record.payload == struct.pack("<IQd", int(told[1]), int(told[2]), clock.time())
            else:
                assert record.payload == bytes.fromhex(what)
        assert end_of(disk, path) == 834 + 36 + 20


def test_the_bytes_of_a_frame_are_as_documented() -> None:
    """The bytes of a frame are as documented."""
    seed = crc32(SALT)
    frame = encode_record(seed, Kind.TAKE, 3, 0x0102030405060708, 0x1112131415161718, b"payload")
    assert frame.hex(" ") == (
        "a7 4c 48 1e "
        + crc32(frame[8:], seed).to_bytes(4, "little").hex(" ")
        + " 07 00 00 00 02 00 00 00 03 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 11 "
        + b"payload".hex(" ")
    )
    assert FRAME_SIZE == 36
    marker, crc, *rest = decode_frame(b"xx" + frame, 2)
    assert (marker, crc) == (MARKER, crc32(frame[8:], seed))
    assert rest == [7, 2, 3, 0x0102030405060708, 0x1112131415161718]


@pytest.mark.parametrize(("version", "size"), [(1, 128), (2, 140)])
def test_the_bytes_of_a_segment_header_are_as_documented(version: int, size: int) -> None:
    """The bytes of a segment header are as documented, in both versions."""
    for key_id, cipher in ((None, 0), ("schlüssel", 1)):
        void_from = 0x0000000500001234 if version > 1 else 0
        header = SegmentHeader(7, 42, SALT, 1_700_000_000.5, 99, key_id, void_from, version)
        data = encode_segment_header(header)
        assert len(data) == header.first_record == 512 + size
        first = data[:size]
        assert data[SECOND_HEADER:] == first
        assert not any(data[size:SECOND_HEADER])
        encoded = (key_id or "").encode()
        assert first[:12] == b"LHSEGMNT" + bytes([version, 0, cipher, len(encoded)])
        assert struct.unpack("<QQ16sdQ64s", first[12:124]) == (
            7,
            42,
            SALT,
            1_700_000_000.5,
            99,
            encoded.ljust(64, b"\0"),
        )
        assert struct.unpack("<I", first[124:128]) == (crc32(first[:124]),)
        if version > 1:
            assert struct.unpack("<II", first[128:136]) == (0x1234, 5)
            assert struct.unpack("<I", first[136:]) == (crc32(first[:136]),)
        assert decode_segment_header(data) == header


def test_the_bytes_of_an_event_are_as_documented() -> None:
    """The bytes of an event are as documented."""
    event = Event({"k": "v", "none": None, "": ""}, b"body")
    assert encode_event(event).hex(" ") == (
        "18 00 00 00 01 00 01 00 00 00 6b 76 04 00 ff ff ff ff 6e 6f 6e 65 00 00 00 00 00 00 62 6f 64 79"
    )
    assert decode_event(encode_event(event), 5) == event


def test_the_bytes_of_a_live_are_as_documented() -> None:
    """The bytes of a Live are as documented, and it answers for its ranges."""
    live = Live(7, 100, (3, 20), (5, 20))
    payload = encode_live(live)
    assert payload == struct.pack("<6Q", 7, 100, 3, 5, 20, 20)
    assert decode_live(payload) == live
    assert [number for number in range(105) if live.has(number)] == [3, 4, 5, 20, 100, 101, 102, 103, 104]
    assert not any(Live(7, 100).has(number) for number in range(100))


def test_the_kinds_of_records_have_their_numbers() -> None:
    """The numbers of record types never change."""
    assert {kind.name: int(kind) for kind in Kind} == {
        "PUT": 1,
        "TAKE": 2,
        "COMMIT": 3,
        "ROLLBACK": 4,
        "GAP": 5,
        "LIVE": 6,
    }


@given(
    headers=st.dictionaries(st.text(st.characters(), max_size=20), st.none() | st.text(st.characters(), max_size=50)),
    body=st.binary(max_size=2000),
    sequence=st.integers(1, 1 << 62),
)
def test_events_survive_encoding(headers: dict[str, str | None], body: bytes, sequence: int) -> None:
    """Any headers and bodies survive encoding."""
    event = decode_event(encode_event(Event(headers, body)), sequence)
    assert list(event.headers.items()) == list(headers.items())
    assert (event.body, event.sequence) == (body, sequence)


def test_commits_and_rollbacks_survive_encoding() -> None:
    """Commits and rollbacks survive encoding."""
    assert decode_commit(encode_commit(3, 1 << 40, 1.25)) == (3, 1 << 40, 1.25, False)
    assert decode_commit(encode_commit(3, HOLDS_ONCE_WRITTEN | 7, 1.25)) == (3, 7, 1.25, True)
    assert decode_rollback(encode_rollback(1, (1 << 63) + 5)) == (1, (1 << 63) + 5)


@pytest.mark.parametrize("headers", [None, {}])
def test_none_and_empty_headers_are_equal_and_a_body_of_none_is_empty(headers: Any) -> None:
    """None and empty headers are equal, and a body of None is empty."""
    assert decode_event(encode_event(Event(headers, b"x")), 1) == Event({}, b"x")
    assert decode_event(encode_event(Event(headers, None)), 1) == Event({}, b"")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0\0\0", b"\5\0\0\0abc", b"\xff\xff\xff\xff", b"\6\0\0\0\1\0\5\0\0\0", b"\7\0\0\0\1\0\5\0\0\0a"],
)
def test_invalid_bytes_of_an_event_raise_valueerror(payload: bytes) -> None:
    """Invalid bytes of an event raise ValueError."""
    with pytest.raises(ValueError, match=r".+"):
        decode_event(payload, 1)


def test_a_header_name_above_65_535_bytes_is_refused_with_its_size() -> None:
    """A header name above 65,535 bytes is refused with its size."""
    with pytest.raises(InvalidArgumentError, match="the name of a header has 65536 bytes, at most 65535 fit"):
        encode_event(Event({"x" * 65536: ""}, b""))
    encode_event(Event({"x" * 65535: ""}, b""))


def test_a_header_is_read_from_whichever_copy_is_whole() -> None:
    """A header is read from either valid copy, and never invented."""
    data = encode_segment_header(HEADER)
    assert decode_segment_header(data) == HEADER
    for offset in range(FIRST_RECORD):
        damaged = bytearray(data)
        damaged[offset] ^= 0xFF
        assert decode_segment_header(bytes(damaged)) == HEADER
        damaged[(offset + SECOND_HEADER) % 1024 if offset < HEADER_SIZE else offset - SECOND_HEADER] ^= 0xFF
        if offset < HEADER_SIZE:
            assert decode_segment_header(bytes(damaged)) is None
    for size in range(FIRST_RECORD):
        assert decode_segment_header(data[:size]) == (HEADER if size >= HEADER_SIZE else None)


def test_a_whole_header_of_another_version_or_cipher_is_refused_by_its_version() -> None:
    """A valid header of a newer version is refused, not treated as damage."""
    for offset, value in ((8, VERSION + 1), (9, 1), (10, 2)):
        body = bytearray(encode_segment_header(HEADER)[: HEADER_SIZES[1] - 4])  # the part common to all versions
        body[offset] = value
        with pytest.raises(UnknownVersionError):
            decode_segment_header(bytes(body) + struct.pack("<I", crc32(body)))


def frames(*kinds: int, salt: bytes = SALT) -> tuple[bytes, list[int]]:
    """Return a segment with these records, and their offsets."""
    data, offsets = bytearray(encode_segment_header(HEADER)), []
    for sequence, kind in enumerate(kinds, 42):
        offsets.append(len(data))
        data += encode_record(crc32(salt), kind, 0, sequence, 5, b"payload %d" % sequence)
    return bytes(data), offsets


def test_records_are_read_in_their_order() -> None:
    """Records are read in order, and nothing else is found."""
    data, offsets = frames(1, 2, 3, 4)
    found = list(scan(data, HEADER))
    assert found == [
        Record(kind, offset, 10, 0, 41 + kind, 5) for kind, offset in zip((1, 2, 3, 4), offsets, strict=True)
    ]


@pytest.mark.parametrize("kind", [0, 7, 77, 255])
def test_a_record_of_an_unknown_kind_is_damage(kind: int) -> None:
    """A record of an unknown type is damage, and later records are read."""
    data, offsets = frames(1, kind, 1)
    found = list(scan(data, HEADER))
    assert [type(item) for item in found] == [Record, Damage, Record]
    assert found[1] == Damage(offsets[1], offsets[2], final=False)


def test_every_byte_of_a_record_is_covered() -> None:
    """Any changed byte invalidates a record and no other."""
    data, offsets = frames(1, 1, 1)
    for offset in range(offsets[1], offsets[2]):
        damaged = bytearray(data)
        damaged[offset] ^= 0x01
        assert list(scan(bytes(damaged), HEADER)) == [
            Record(1, offsets[0], 10, 0, 42, 5),
            Damage(offsets[1], offsets[2], final=False),
            Record(1, offsets[2], 10, 0, 44, 5),
        ]


def test_a_record_of_another_segment_never_passes() -> None:
    """A record of another segment never passes, because of its salt."""
    inner = encode_record(crc32(b"other segment..."), Kind.COMMIT, 0, 50, 6, b"")
    whole = encode_record(crc32(SALT), Kind.PUT, 0, 42, 5, b"before" + inner + b"after")
    data = encode_segment_header(HEADER) + whole
    assert [type(item) for item in scan(data, HEADER)] == [Record]
    broken = bytearray(data)
    broken[FIRST_RECORD + 40] ^= 1
    (damage,) = scan(bytes(broken), HEADER)
    assert damage == Damage(FIRST_RECORD, len(data), final=True)


def test_sequence_numbers_never_go_back_within_a_segment() -> None:
    """A record with a lower sequence number than the one before is damage."""
    data = encode_segment_header(HEADER) + b"".join(
        encode_record(crc32(SALT), 1, 0, sequence, 5, b"") for sequence in (50, 49, 50, 51)
    )
    assert [getattr(item, "sequence", None) for item in scan(data, HEADER)] == [50, None, 50, 51]


@pytest.mark.parametrize("cut", range(1, 46))
def test_half_a_record_at_the_end_is_damage_up_to_the_end(cut: int) -> None:
    """Half a record at the end is damage; zeros at the end are not."""
    data, offsets = frames(1, 1)
    found = list(scan(data[:-cut], HEADER))
    assert found[1:] == [Damage(offsets[1], len(data[:-cut].rstrip(b"\0")), final=True)]


def test_no_bytes_make_the_reader_fail() -> None:
    """Random bytes never raise an exception."""
    random = os.urandom(5000)
    for rubbish in (random, MARKER * 500, MARKER + b"\xff" * 100, b"\0" * 700 + b"\1", MARKER[:2] * 99, MAGIC * 9):
        (damage,) = scan(encode_segment_header(HEADER) + rubbish, HEADER)
        assert damage == Damage(FIRST_RECORD, FIRST_RECORD + len(rubbish), final=True)


def test_numbers_continue_after_those_of_earlier_openings() -> None:
    """Numbers continue after those of earlier openings."""
    disk, seen = SimFS(), []
    for _ in range(4):
        with open_channel(disk) as channel:
            put(channel, "a")
            take(channel)
        seen.append([(record.sequence, record.transaction) for record in log(disk) if record.kind in (1, 2)])
    numbers = [pair for life in seen for pair in life]
    assert numbers == sorted(numbers)
    assert len({sequence for sequence, _ in numbers}) == 4
    assert len({transaction for _, transaction in numbers}) == 8


@pytest.mark.parametrize("size", [0, 1, 5119, 5120, 5121, 10240, 60_000, 256 * 1024 - 1, 256 * 1024, 300_000])
def test_checksums_equal_those_of_zlib_in_any_number_of_parts(size: int) -> None:
    """Checksums equal those of zlib, in any number of parts."""
    data = random.Random(size).randbytes(size)
    for start in (0, 1, 7, 0xFFFFFFFF):
        found = (checksum(data, start), checksum(memoryview(data), start), format_.crc32(data, start))
        assert found == (zlib.crc32(data, start),) * 3


def test_the_checksum_of_an_ordinary_event_lets_no_other_thread_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum of a common event keeps the interpreter lock."""
    sizes: list[int] = []

    def crc32(data: bytes | memoryview, start: int = 0) -> int:
        sizes.append(len(data))
        return zlib.crc32(data, start)

    monkeypatch.setattr(format_, "crc32", crc32)
    payload = encode_event(Event({}, bytes(100_000)))
    frame, _ = encode_records(1, 5, 1, [payload], [])
    assert put_at(frame, memoryview(frame), 0, len(payload), 5, 1) == bytes(payload)
    assert sum(sizes) > 200_000
    assert max(sizes) <= 5 * 1024
