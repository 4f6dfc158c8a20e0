"""Run: the records that one transaction writes in one piece, and places in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import pack, unpack
from typing import NamedTuple

from ....model.errors import ChannelIOError
from ...room import Claim
from ..store.encryption import OVERHEAD
from ..store.format import (
    COMMIT_SIZE,
    FRAME_SIZE,
    Kind,
    Live,
    PutPayload,
    decode_commit,
    decode_live,
    encode_commit,
    encode_live,
)
from ..store.pointers import pointer_to
from ..store.segment import Damage, Segment, opened, scan
from ..store.speed import encode_records

#: Plain numbers pack faster than enum members.
_TAKE, _LIVE, _COMMIT = Kind.TAKE.value, Kind.LIVE.value, Kind.COMMIT.value


class Place(NamedTuple):
    """Location of a run in the log.

    :ivar segment: number of the segment.
    :ivar start: offset of the run in it.
    :ivar offsets: offsets of its Puts.
    :ivar lengths: payload sizes of its Puts there, bytes.
    """

    segment: int
    start: int
    offsets: Sequence[int]
    lengths: Sequence[int]


class Run:
    """Records of one transaction: Puts, a Take, or a Live, and a Commit.

    :ivar puts: payloads of its Puts.
    :ivar takes: sequence numbers that it takes.
    :ivar live: the list of live events; only in the channel's own transactions.
    :ivar number: position among all runs; 0 until it is written.
    :ivar first: sequence number of its first Put.
    :ivar place: its location; None until it is written.
    :ivar error: why it could not be synced; None if it was.
    :ivar claim: the capacity reserved for its Puts, until they are in the queue.
    :ivar records: number of records before its Commit.
    :ivar size: its approximate size in a segment, bytes.
    """

    __slots__ = (
        "claim",
        "error",
        "first",
        "live",
        "number",
        "place",
        "puts",
        "records",
        "size",
        "takes",
        "time",
        "transaction",
    )

    def __init__(
        self,
        puts: Sequence[PutPayload] = (),
        takes: Sequence[int] = (),
        time: float = 0.0,
        live: Live | None = None,
        *,
        transaction: int = 0,
        first: int = 0,
        claim: Claim | None = None,
    ) -> None:
        self.puts, self.takes, self.time, self.live = puts, takes, time, live
        self.number, self.transaction, self.first = 0, transaction, first
        self.place: Place | None = None
        self.error: ChannelIOError | None = None
        self.claim = claim
        self.records = len(puts) + bool(takes) + (live is not None)
        size = claim.size if claim is not None else sum(map(len, puts))
        if live is not None:
            size += 16 * (1 + len(live.firsts))
        self.size = size + 8 * len(takes) + COMMIT_SIZE + (self.records + 1) * (FRAME_SIZE + OVERHEAD)

    @property
    def last(self) -> int:
        """Return the sequence number of its last Put; one below the first if it has none."""
        return self.first + len(self.puts) - 1

    def pointers(self) -> Mapping[int, int]:
        """Return the pointer of each of its events, by sequence number."""
        place = self.place
        if place is None:
            return {}
        return {self.first + at: pointer_to(place.segment, offset) for at, offset in enumerate(place.offsets)}


def encode_run(run: Run, segment: Segment, synced: int, start: int) -> tuple[bytes, Place]:
    """Encode a run's records for a segment; return the bytes and their location.

    :param synced: the newest transaction known to be on the disk.
    :param start: the current end of the segment, an offset.
    """
    cipher, transaction, puts, first, last = segment.cipher, run.transaction, run.puts, run.first, run.last
    others = [(_TAKE, pack(f"<{len(run.takes)}Q", *run.takes))] if run.takes else []
    others += [(_LIVE, encode_live(run.live))] if run.live is not None else []
    others.append((_COMMIT, encode_commit(run.records, synced, run.time)))
    if cipher is not None:
        puts = [cipher.seal(Kind.PUT, number, transaction, bytes(one)) for number, one in enumerate(puts, first)]
        others = [(kind, cipher.seal(kind, last, transaction, payload)) for kind, payload in others]
    data, sizes = encode_records(segment.header.seed, first, transaction, puts, others)
    offsets = list(accumulate(sizes[:-1], initial=start)) if sizes else []
    return data, Place(segment.header.number, start, offsets, [size - FRAME_SIZE for size in sizes])


def decode_runs(data: bytes, segment: Segment, start: int) -> list[Run]:
    """Decode the runs of a segment from offset ``start`` on.

    :raises ValueError: a record is invalid.
    """
    runs: list[Run] = []
    puts, takes, live = list[bytes](), tuple[int, ...](), None
    for item in scan(data, segment.header, start):
        payload = None if isinstance(item, Damage) else opened(segment, data, item)
        if isinstance(item, Damage) or payload is None:
            raise ValueError(f"{segment.path} has an invalid record at or after offset {start}")
        if item.kind == Kind.PUT:
            puts.append(payload)
        elif item.kind == Kind.TAKE:
            takes = unpack(f"<{len(payload) // 8}Q", payload)
        elif item.kind == Kind.LIVE:
            live = decode_live(payload)
        elif item.kind == Kind.COMMIT:
            first, time = item.sequence - len(puts) + 1, decode_commit(payload)[2]
            runs.append(Run(puts, takes, time, live, transaction=item.transaction, first=first))
            puts, takes, live = [], (), None
    return runs


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two runs: all runs before it are in the queue, or gone."""

    segment: int
    offset: int

    @property
    def pointer(self) -> int:
        """Return the position as one number."""
        return pointer_to(self.segment, self.offset)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the log.

    :ivar position: the end of the log.
    :ivar transaction: the last transaction before it.
    :ivar sequence: sequence number of the first event after it.
    """

    position: Position
    transaction: int
    sequence: int
