"""Run: what one transaction writes into the log, in one piece, and places in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import pack

from ...errors import ChannelIOError
from .encryption import OVERHEAD
from .event_queue import pointer_to
from .format import COMMIT_SIZE, FRAME_SIZE, Kind, encode_commit, encode_record
from .segment import Segment


@dataclass(slots=True, eq=False)
class Run:
    """What one transaction writes.

    :ivar puts: payloads of its Puts; empty if it takes.
    :ivar takes: sequence numbers that it takes; empty if it puts.
    :ivar number: its place among all runs.
    :ivar first: sequence number of its first Put.
    :ivar offsets: where its Puts stand in the segment.
    :ivar lengths: the bytes of their payloads there.
    :ivar error: why it could not be brought to the disk.
    """

    puts: Sequence[bytes] = ()
    takes: Sequence[int] = ()
    time: float = 0.0
    number: int = 0
    transaction: int = 0
    first: int = 0
    segment: int = 0
    start: int = 0
    offsets: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    error: ChannelIOError | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes in a segment."""
        records = len(self.puts) + bool(self.takes) + 1
        return sum(map(len, self.puts)) + 8 * len(self.takes) + COMMIT_SIZE + records * (FRAME_SIZE + OVERHEAD)

    @property
    def last(self) -> int:
        """Sequence number of its last Put; one below the first if it has none."""
        return self.first + len(self.puts) - 1


def encode_run(run: Run, segment: Segment, synced: int) -> bytes:
    """The run's records for this segment; notes where its Puts will stand, from the run's start."""
    frames: list[bytes] = []
    seed, cipher, transaction = segment.header.seed, segment.cipher, run.transaction
    remaining, offset, sequence = len(run.puts) + bool(run.takes), 0, run.first
    run.offsets, run.lengths = [], []
    for payload in run.puts:
        sealed = payload if cipher is None else cipher.seal(Kind.PUT, sequence, transaction, payload)
        frame = encode_record(seed, 1, remaining, sequence, transaction, sealed)
        frames.append(frame)
        run.offsets.append(offset)
        run.lengths.append(len(sealed))
        offset += len(frame)
        remaining -= 1
        sequence += 1
    rest = [(Kind.TAKE, pack(f"<{len(run.takes)}Q", *run.takes))] if run.takes else []
    rest.append((Kind.COMMIT, encode_commit(len(run.puts) + bool(run.takes), synced, run.time)))
    for kind, payload in rest:
        sealed = payload if cipher is None else cipher.seal(kind, run.last, transaction, payload)
        frames.append(encode_record(seed, kind, remaining, run.last, transaction, sealed))
        remaining -= 1
    return b"".join(frames)


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two runs: what is before it is in the queue, or gone."""

    segment: int
    offset: int

    @property
    def pointer(self) -> int:
        """As one number."""
        return pointer_to(self.segment, self.offset)
