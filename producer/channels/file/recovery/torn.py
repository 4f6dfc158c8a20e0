"""Torn, or damaged: what a crash may have left half written, told apart from what was destroyed afterwards.

What is torn was never acknowledged, and is forgotten with its whole transaction. What is damaged costs only the damaged
records. The evidence is in the bytes: a file that ends where a record should go on, a 512-byte sector of zeros, which
was never written. Stronger is a Commit, or the header of a later segment, that says that the transaction holds: then it
is not torn.

Replay decides by these rules what counts, and a repair what it may mend: half of a transaction that was never committed
would come to life if something readable were put in the place of what is torn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..store.format import COMMIT_SIZE, FRAME_SIZE, MARKER, SECTOR, decode_frame
from ..store.segment import Damage


@dataclass(frozen=True, slots=True)
class Flaw:
    """A stretch that does not check out: what it may have cost, and whether a crash may have left it so.

    :ivar segment: the number of its segment.
    :ivar damage: where it is.
    :ivar transaction: the newest transaction that it may have belonged to.
    :ivar first_lost: the first and
    :ivar last_lost: the last sequence number that may have stood there; none if the last is less.
    :ivar looks_torn: what its bytes say.
    """

    segment: int
    damage: Damage
    transaction: int
    first_lost: int
    last_lost: int
    looks_torn: bool


def run_looks_torn(
    data: bytes, damages: Sequence[Damage], *, end: int, has_commit: bool, remaining: int, overhead: int
) -> bool:
    """Whether a transaction of which something is missing was never written as a whole.

    :param data: the whole segment.
    :param damages: what is damaged of it, or was and is repaired.
    :param end: where its last whole record ends.
    :param has_commit: whether its Commit is there.
    :param remaining: how many records should follow the last whole one.
    :param overhead: bytes by which encryption makes a payload longer.
    """
    if any(has_lost_sector(data, damage.start, damage.end) for damage in damages):
        return True
    if has_commit:
        return False
    if not damages or damages[-1].start < end:
        return True  # others should have followed: the file ends behind a whole record
    last = damages[-1]
    return last.final and _end_was_not_written(data, last, remaining=remaining, overhead=overhead)


def _end_was_not_written(data: bytes, last: Damage, *, remaining: int, overhead: int) -> bool:
    """True if the stretch at the end of a segment is too short for the records that should follow."""
    if remaining != 1:
        return last.end - last.start < remaining * FRAME_SIZE + COMMIT_SIZE or is_cut_short(data, last)
    whole = last.start + FRAME_SIZE + COMMIT_SIZE + overhead
    if not overhead:
        return last.end < whole
    # An encrypted Commit's own last bytes may be zeros, each 256th time: its sector was written then.
    return len(data) < whole or has_lost_sector(data, last.start, whole)


def end_looks_torn(data: bytes, damage: Damage) -> bool:
    """Whether a stretch at the end of a segment, behind a whole transaction, was never written as a whole."""
    return (
        damage.end - damage.start < FRAME_SIZE + COMMIT_SIZE
        or has_lost_sector(data, damage.start, damage.end)
        or is_cut_short(data, damage)
    )


def has_lost_sector(data: bytes, start: int, end: int) -> bool:
    """Whether between these offsets the part of some 512-byte sector is all zeros: it was never written."""
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if not any(data[start:stop]):
            return True
        start = stop
    return False


def is_cut_short(data: bytes, damage: Damage) -> bool:
    """Whether a record begins here, by its marker, that would reach beyond the end: its write was not finished."""
    if damage.end - damage.start < FRAME_SIZE:
        return False
    marker, _, length, *_ = decode_frame(data, damage.start)
    return marker == MARKER and damage.start + FRAME_SIZE + length > damage.end
