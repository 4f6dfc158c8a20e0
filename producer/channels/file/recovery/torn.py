"""Torn or damaged: tell half-written records of a crash from records destroyed afterwards.

A torn transaction was never acknowledged, and is dropped whole. Damage loses only the damaged records. The bytes are
the evidence: a file that ends inside a record, or a 512-byte sector of zeros, which was never written. A Commit, or the
header of a later segment, that confirms the transaction is stronger: then it is not torn.

Replay uses these rules to decide which records count, and a repair to decide which it may overwrite. A gap in place of
a torn record would revive half of a transaction that was never committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..store.format import COMMIT_SIZE, FRAME_SIZE, MARKER, SECTOR, decode_frame
from ..store.segment import Damage


@dataclass(frozen=True, slots=True)
class Flaw:
    """An invalid stretch, with the events that it may have held.

    :ivar segment: number of its segment.
    :ivar damage: its place.
    :ivar transaction: the newest transaction that it may have belonged to.
    :ivar first_lost: the first sequence number that may have been there.
    :ivar last_lost: the last one; less than the first for none.
    :ivar looks_torn: True if its bytes look half written.
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
    """True if an incomplete transaction was never completely written.

    :param data: the whole segment.
    :param damages: its damaged stretches, repaired ones included.
    :param end: the end of its last valid record.
    :param has_commit: True if its Commit is there.
    :param remaining: number of records that should follow the last valid one.
    :param overhead: bytes that encryption adds to a payload.
    """
    if any(has_lost_sector(data, damage.start, damage.end) for damage in damages):
        return True
    if has_commit:
        return False
    if not damages or damages[-1].start < end:
        return True  # the file ends after a valid record, and others should follow
    last = damages[-1]
    return last.final and _end_was_not_written(data, last, remaining=remaining, overhead=overhead)


def _end_was_not_written(data: bytes, last: Damage, *, remaining: int, overhead: int) -> bool:
    """True if the stretch at the end of a segment is too short for the remaining records."""
    if remaining != 1:
        return last.end - last.start < remaining * FRAME_SIZE + COMMIT_SIZE or is_cut_short(data, last)
    whole = last.start + FRAME_SIZE + COMMIT_SIZE + overhead
    if not overhead:
        return last.end < whole
    # One in 256 encrypted Commits ends in a zero byte: its sector was written.
    return len(data) < whole or has_lost_sector(data, last.start, whole)


def end_looks_torn(data: bytes, damage: Damage) -> bool:
    """True if a stretch at the end of a segment, after a valid transaction, was never completely written."""
    return (
        damage.end - damage.start < FRAME_SIZE + COMMIT_SIZE
        or has_lost_sector(data, damage.start, damage.end)
        or is_cut_short(data, damage)
    )


def has_lost_sector(data: bytes, start: int, end: int) -> bool:
    """True if some 512-byte sector between these offsets is all zeros there, and so was never written."""
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if not any(data[start:stop]):
            return True
        start = stop
    return False


def is_cut_short(data: bytes, damage: Damage) -> bool:
    """True if a record starts here and would extend beyond the end, so that its write was not finished."""
    if damage.end - damage.start < FRAME_SIZE:
        return False
    marker, _, length, *_ = decode_frame(data, damage.start)
    return marker == MARKER and damage.start + FRAME_SIZE + length > damage.end
