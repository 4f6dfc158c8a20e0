"""Every byte of a small log cut off or flipped: all undamaged events are recovered, and nothing else.

``PRODUCER_SOAK=1`` opens each log twice, and flips each byte wholly and in one bit.
"""

import os
from dataclasses import dataclass
from functools import cache

import pytest

from producer.channels import Event
from producer.channels.file.store.format import FIRST_RECORD, Kind
from producer.model.interfaces import FileStats
from tests.channels.file.opening import (
    CHECKPOINTS,
    Written,
    file_stats,
    killed,
    log,
    open_channel,
    opened_channel,
    segments,
)
from tests.support.sim_fs import SimFS

SOAK = bool(os.environ.get("PRODUCER_SOAK"))
#: One of this many logs is opened twice, and at least one of each kind.
AGAIN = 1 if SOAK else 7
#: Events of each putting transaction; takes follow the third and the last.
PUTS = (1, 2, 1, 3, 1)
TAKES = {2: 2, 4: 3}


@dataclass(frozen=True, slots=True)
class Log:
    """A small log of a killed process.

    :ivar content: the bytes of each file.
    :ivar path: its only segment.
    :ivar records: its records.
    :ivar events: all events that were put, by sequence number.
    :ivar taken: the takes of each taking transaction.
    """

    content: dict[str, bytes]
    path: str
    records: list[Written]
    events: dict[int, Event]
    taken: dict[int, set[int]]

    def disk(self, **changed: bytes | None) -> SimFS:
        """Return a disk with this log; the named files are replaced, or missing if None."""
        replaced = dict(zip((self.path, *CHECKPOINTS), ("segment", "checkpoint", "backup"), strict=True))
        disk = SimFS()
        disk.make_directory("/channel")
        for path, content in self.content.items():
            new = changed.get(replaced.get(path, ""), content)
            if new is not None:
                disk.put(path, new)
        return disk

    @property
    def segment(self) -> bytes:
        return self.content[self.path]

    @property
    def owed(self) -> list[int]:
        gone = set().union(*self.taken.values())
        return [sequence for sequence in self.events if sequence not in gone]


@cache
def small_log() -> Log:
    """Write five putting transactions, two taking ones, and a checkpoint in between."""
    disk = SimFS()
    channel = open_channel(disk)
    events: dict[int, Event] = {}
    for place, count in enumerate(PUTS):
        with channel.transaction() as transaction:
            put = [Event({"n": str(len(events) + index)}, b"%d" % place * 9) for index in range(count)]
            transaction.put_many(put)
        for event in put:
            events[len(events) + 1] = event
        if place in TAKES:
            with channel.transaction() as transaction:
                transaction.take(TAKES[place])
        if place == 2:
            channel.checkpoint()
    disk = killed(channel, disk)
    (path,) = segments(disk)
    content = {name: disk.content(name) for name in (path, *CHECKPOINTS, "/channel/LOCK")}
    records = log(disk)
    content[path] = content[path][: records[-1].end]
    taken: dict[int, set[int]] = {}
    for record in records:
        if record.kind == Kind.TAKE:
            whole = range(0, len(record.payload), 8)
            taken[record.transaction] = {int.from_bytes(record.payload[at : at + 8], "little") for at in whole}
    return Log(content, path, records, events, taken)


def look(disk: SimFS, number: int = 0) -> tuple[list[int], FileStats]:
    """Open the channel and peek at everything, perhaps twice; return the numbers and the statistics."""
    with opened_channel(disk) as channel:
        found, stats = _sequences(channel), file_stats(channel)
    if number % AGAIN == 0:
        with opened_channel(disk) as channel:
            assert _sequences(channel) == found, "it changed by being opened again"
    return found, stats


def _sequences(channel: object) -> list[int]:
    events = small_log().events
    transaction = channel.transaction()  # type: ignore[attr-defined]
    transaction.begin()
    taken = transaction.take(100)
    transaction.rollback()
    for event in taken:
        assert event == events[event.sequence], "an event was altered, or invented"
    return [event.sequence for event in taken]


def test_the_log_has_all_that_it_should() -> None:
    """The log under test holds puts, takes, commits and a checkpoint in the middle."""
    small = small_log()
    kinds = [record.kind for record in small.records]
    assert [kinds.count(kind) for kind in (Kind.PUT, Kind.TAKE, Kind.COMMIT)] == [8, 2, 7]
    assert len({record.transaction for record in small.records}) == 7
    assert look(small.disk())[0] == look(small.disk(checkpoint=None, backup=None))[0] == small.owed == [6, 7, 8]
    assert set().union(*small.taken.values()) == {1, 2, 3, 4, 5}


def known_to_checkpoint() -> set[int]:
    """Return the events of the checkpoint after the fourth transaction."""
    small = small_log()
    puts = {each.sequence for each in small.records if each.kind == Kind.PUT and each.transaction <= 4}
    return puts.difference(*(taken for transaction, taken in small.taken.items() if transaction <= 4))


def events_of_whole(size: int) -> set[int]:
    """Return the events of the transactions complete in ``size`` bytes, taken ones included."""
    small = small_log()
    whole = {each.transaction for each in small.records if each.kind == Kind.COMMIT and each.end <= size}
    return {each.sequence for each in small.records if each.kind == Kind.PUT and each.transaction in whole}


def cut_at(size: int) -> list[int]:
    """Return the remaining events of the transactions complete in ``size`` bytes."""
    small = small_log()
    whole = {record.transaction for record in small.records if record.kind == Kind.COMMIT and record.end <= size}
    gone = set().union(*(taken for transaction, taken in small.taken.items() if transaction in whole))
    puts = [record for record in small.records if record.kind == Kind.PUT and record.transaction in whole]
    return [record.sequence for record in puts if record.sequence not in gone]


WITH = {"with checkpoints": {}, "without": {"checkpoint": None, "backup": None}}
checkpoints = pytest.mark.parametrize("missing", WITH.values(), ids=WITH)


@checkpoints
def test_cut_anywhere_the_log_keeps_every_whole_transaction(missing: dict[str, None]) -> None:
    """A log cut anywhere keeps exactly the complete transactions."""
    small = small_log()
    ends = {FIRST_RECORD, *(record.end for record in small.records if record.kind == Kind.COMMIT)}
    for size in range(len(small.segment)):
        found, stats = look(small.disk(segment=small.segment[:size], **missing), size)
        assert found == cut_at(size), size
        if not missing:
            position = next(record.end for record in small.records if record.transaction == 4 and record.kind == 3)
            assert stats.checkpoint_fallbacks == (2 if size < position else 0), size
        if size > FIRST_RECORD:
            assert stats.torn_tails == (size not in ends), size
            lost = known_to_checkpoint() - events_of_whole(size) if not missing and stats.checkpoint_fallbacks else ()
            assert (stats.damaged_records, stats.lost_events) == (0, len(lost)), size


def damaged(offset: int) -> Written | None:
    """Return the record that holds this byte; None in the headers."""
    return next((record for record in small_log().records if record.offset <= offset < record.end), None)


def may_be_found(record: Written | None) -> tuple[set[int], set[int]]:
    """Return the events that must, and that may, be found with this record damaged."""
    small = small_log()
    must = may = set(small.owed)
    if record is not None and record.kind == Kind.PUT:
        must = may = must - {record.sequence}
    elif record is not None and record.kind == Kind.TAKE:  # no longer known to be taken, unless by a checkpoint
        may = must | small.taken[record.transaction]
    return must, may


def flipped(byte: int, offset: int) -> list[int]:
    """Return the values to flip a byte to: all bits, or one; without a soak they alternate."""
    both = [byte ^ 0xFF, byte ^ 1 << offset // 2 % 8]
    return both if SOAK else both[offset % 2 :][:1]


@checkpoints
def test_turned_over_anywhere_a_byte_costs_no_more_than_its_record(missing: dict[str, None]) -> None:
    """A flipped byte costs at most its own record, and is counted."""
    small = small_log()
    turned = [(offset, new) for offset, byte in enumerate(small.segment) for new in flipped(byte, offset)]
    for offset, new in turned:
        broken = bytearray(small.segment)
        broken[offset] = new
        found, stats = look(small.disk(segment=bytes(broken), **missing), offset)
        record = damaged(offset)
        must, may = may_be_found(record)
        assert must <= set(found) <= may, offset
        assert found == sorted(found), offset
        lost = len(set(small.owed) - set(found))
        assert stats.lost_events >= lost, offset
        if record is None:
            assert stats.damaged_records == stats.torn_tails == stats.quarantined == 0, offset
        elif missing:
            assert stats.damaged_records == stats.quarantined == 1, offset
            assert stats.torn_tails == 0, offset
            assert stats.lost_events == (record.kind == Kind.PUT and record.sequence in small.owed), offset


@pytest.mark.parametrize("copies", [("checkpoint",), ("backup",), ("checkpoint", "backup")], ids="+".join)
def test_a_damaged_checkpoint_costs_nothing(copies: tuple[str, ...]) -> None:
    """A damaged checkpoint loses nothing: the other copy or the log is used."""
    small = small_log()
    whole = small.content[CHECKPOINTS[0]]
    assert small.content[CHECKPOINTS[1]] == whole
    for offset in range(len(whole)):
        turned = [whole[:offset] + bytes([new]) + whole[offset + 1 :] for new in flipped(whole[offset], offset)]
        for broken in (*turned, whole[:offset]):
            found, stats = look(small.disk(**dict.fromkeys(copies, broken)), offset)
            assert found == small.owed, offset
            assert stats.checkpoint_fallbacks == len(copies), offset
            assert stats.damaged_records == stats.lost_events == stats.torn_tails == 0, offset


def test_numbers_of_events_that_were_cut_off_are_not_given_again() -> None:
    """Sequence numbers of events cut off are not reused."""
    small = small_log()
    disk = small.disk(segment=small.segment[: next(each.end for each in small.records if each.kind == Kind.COMMIT)])
    with opened_channel(disk) as channel, channel.transaction() as transaction:
        transaction.put(Event({}, b"new"))
    with opened_channel(disk) as channel, channel.transaction() as transaction:
        assert transaction.take(100)[-1].sequence > max(known_to_checkpoint())
