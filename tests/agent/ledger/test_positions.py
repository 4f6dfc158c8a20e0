"""Positions of a channel that keeps its events: what they cost, and what becomes of forgotten ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from producer.agent.events.batch import EventBatch, Position
from producer.agent.ledger.delivered_positions import DeliveredPositions
from producer.agent.ledger.positions import KeptPositions
from producer.channels.file.store.notes import FileNotes
from producer.testing import ManualClock

from ..doubles import file_channel, opened, taken

_AnyPositions = KeptPositions | DeliveredPositions


class _Touched(dict[str, int]):
    """Counts looks at its entries."""

    looks = 0

    def __getitem__(self, key: str) -> int:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Any:
        self.looks += len(self)
        return super().__iter__()


def _put(end: int, name: str = "s/f") -> EventBatch:
    return EventBatch.of_lines(b"%d\n" % end, position=Position(name, end))


def test_a_flush_costs_what_has_changed(tmp_path: Path) -> None:
    """Of 10,000 names that stand still nothing is looked at, however often what is due is noted."""
    notes = FileNotes(str(tmp_path), "c")
    positions = KeptPositions(notes, lambda: None, ())
    for number in range(10_000):
        positions.passed(Position(f"s/{number}", 1))
    positions.flush()
    positions._ends = counted = _Touched(positions._ends)
    for end in range(2, 12):
        positions.passed(Position("s/7", end))
        positions.flush()
    assert counted.looks < 100
    assert notes.read("position:s/7") == b"11"
    positions.flush()
    notes.close()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_failed_flush_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps: bool) -> None:
    """What could not be noted is noted the next time."""
    notes = FileNotes(str(tmp_path), "c")
    positions = KeptPositions(notes, lambda: None, ()) if keeps else DeliveredPositions(notes, ManualClock())
    positions.passed(Position("s/f", 4))
    with monkeypatch.context() as broken:

        def fail(_rows: Iterable[object]) -> None:
            raise OSError("the disk is full")

        broken.setattr(notes, "write_many", fail)
        with pytest.raises(OSError, match="full"):
            positions.flush()
    positions.flush()
    assert notes.read("position:s/f") == b"4"
    notes.close()


def test_a_forgotten_name_does_not_come_back_with_its_last_batch(tmp_path: Path) -> None:
    """A file was put whole, completed and forgotten while its batches were in the channel: when they leave, its
    position is noted no more, or there would be a note for each file that ever was.
    """
    with opened(file_channel(tmp_path)) as channel:
        for end in (2, 4):
            channel.put(_put(end))
        channel.put(_put(3, "s/other"))
        channel.positions.forget("s/f")
        assert len(taken(channel)) == 3
        channel.positions.flush()
        assert list(channel.positions.names()) == ["s/other"]
    with opened(file_channel(tmp_path)) as channel:
        assert list(channel.positions.names()) == ["s/other"]
        channel.put(_put(6))
        assert channel.positions.end("s/f") == 6
        taken(channel)
    with opened(file_channel(tmp_path)) as channel:
        assert channel.positions.end("s/f") == 6


def test_a_name_that_is_put_again_after_it_was_forgotten_is_known(tmp_path: Path) -> None:
    """Its new position counts, although batches from before are still in the channel."""
    with opened(file_channel(tmp_path)) as channel:
        channel.put(_put(8))
        channel.positions.forget("s/f")
        assert channel.positions.end("s/f") == 0
        channel.put(_put(2))
        assert channel.positions.end("s/f") == 2
        taken(channel)
        channel.put(_put(5))
        assert channel.positions.end("s/f") == 5
        taken(channel)


def test_a_name_that_is_forgotten_while_it_is_noted_stays_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source forgets it on its thread while the sink's writes notes."""
    with opened(file_channel(tmp_path)) as channel:
        notes = channel.channel.notes  # type: ignore[attr-defined]
        write = notes.write_many

        def slow(rows: Iterable[tuple[str, bytes, int]]) -> None:
            channel.positions.forget("s/f")
            write(rows)

        channel.put(_put(4))
        monkeypatch.setattr(notes, "write_many", slow)
        taken(channel)
        monkeypatch.undo()
        assert notes.items("position:") == {}
        assert list(channel.positions.names()) == []


class _Lock:
    """Tells when somebody has to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock, self._waited_for = threading.Lock(), waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _note(positions: _AnyPositions, end: int) -> None:
    positions.passed(Position("s/f", end))
    positions.flush()


def _lose(positions: _AnyPositions) -> None:
    positions.lost(Position("s/f", 4), 2, held=False)


@pytest.mark.parametrize(
    ("keeps", "later", "noted"),
    [
        (True, lambda positions: _note(positions, 8), b"8"),
        (False, lambda positions: _note(positions, 8), b"8"),
        (True, _lose, b"2"),
        (True, lambda positions: positions.forget("s/f"), None),
        (False, lambda positions: positions.forget("s/f"), None),
    ],
)
def test_a_note_of_two_threads_says_what_was_said_last(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    keeps: bool,
    later: Callable[[_AnyPositions], None],
    noted: bytes | None,
) -> None:
    """Of two sinks of a channel one is slow to write its note: it would have what the other one noted read again."""
    notes, on_its_way = FileNotes(str(tmp_path), "c"), threading.Event()
    positions = KeptPositions(notes, lambda: None, ()) if keeps else DeliveredPositions(notes, ManualClock())
    positions._writing = _Lock(on_its_way)  # type: ignore[assignment]

    def other() -> None:
        later(positions)
        on_its_way.set()

    thread, write = threading.Thread(target=other), notes.write_many

    def slow(rows: Iterable[tuple[str, bytes, int]]) -> None:
        if thread.ident is None:
            thread.start()
            assert on_its_way.wait(60)
        write(rows)

    monkeypatch.setattr(notes, "write_many", slow)
    _note(positions, 4)
    thread.join()
    assert notes.read("position:s/f") == noted
    notes.close()


def test_what_could_not_be_put_is_neither_delivered_nor_waited_for(tmp_path: Path) -> None:
    """A put that failed leaves no end behind, up to which all would be taken to be delivered once those before are."""
    notes = FileNotes(str(tmp_path), "c")
    positions = DeliveredPositions(notes, ManualClock())
    positions.putting(Position("s/f", 2))
    positions.put(Position("s/f", 2), None)
    positions.putting(Position("s/f", 4))
    positions.failed(Position("s/f", 4))
    positions.left([_put(2)])
    assert positions.safe_end("s/f") == 2
    assert positions.is_safe("s/f")
    positions.close()


def test_what_others_have_up_to_its_end_is_not_read_again(tmp_path: Path) -> None:
    """Of channels that take turns: the source goes on behind that; where they end before it, it does not."""
    notes = FileNotes(str(tmp_path), "c")
    for furthest, again in ((4, False), (6, False), (2, True)):
        positions = KeptPositions(notes, lambda: None, ())
        positions.passed(Position("s/f", 4))
        assert positions.lost(Position("s/f", 4), 2, held=False, furthest=furthest) is again
        assert positions.end("s/f") == (2 if again else 4)
    notes.close()


def _waiting(tmp_path: Path, *ends: int) -> DeliveredPositions:
    """With batches in the channel."""
    positions = DeliveredPositions(FileNotes(str(tmp_path), "c"), ManualClock())
    _putting(positions, *ends)
    return positions


def _putting(positions: DeliveredPositions, *ends: int) -> None:
    for end in ends:
        positions.putting(Position("s/f", end))
        positions.put(Position("s/f", end), None)


def test_what_is_lost_is_read_again_from_before_it_and_safe_once_that_is_delivered(tmp_path: Path) -> None:
    """The second of three is lost: the source begins behind the first. What came behind is still in the channel: that
    it leaves says nothing of what has the same end and more in it, and is to be delivered yet.
    """
    positions = _waiting(tmp_path, 2, 4, 6)
    positions.left([_put(2)])
    assert positions.lost(Position("s/f", 4), 2, held=True)
    assert positions.end("s/f") == 6
    positions.begin("other/")
    assert positions.end("s/f") == 6
    positions.begin("s/")
    assert (positions.end("s/f"), positions.safe_end("s/f")) == (2, 2)
    _putting(positions, 6)
    positions.left([_put(6)])
    assert (positions.safe_end("s/f"), positions.is_safe("s/f")) == (2, False)
    positions.left([_put(6)])
    assert (positions.safe_end("s/f"), positions.is_safe("s/f")) == (6, True)
    positions.close()


def test_what_was_to_come_again_and_is_damaged_as_well_holds_nothing_up(tmp_path: Path) -> None:
    """The first of two is lost, and the second one when the source has begun anew before it: what it puts in their
    place is delivered like anything else.
    """
    positions = _waiting(tmp_path, 2, 4)
    assert positions.lost(Position("s/f", 2), 0, held=True)
    positions.begin("s/")
    _putting(positions, 2)
    assert positions.lost(Position("s/f", 4), 2, held=True)
    positions.begin("s/")
    _putting(positions, *(end for end in (2, 4) if end > positions.end("s/f")))
    for end in (2, 4):
        positions.left([_put(end)])
    assert (positions.safe_end("s/f"), positions.is_safe("s/f")) == (4, True)
    positions.close()


def test_what_nobody_can_tell_to_be_lost_is_so_once_the_channel_is_empty(tmp_path: Path) -> None:
    """Of a batch that is damaged as a whole not even the position is known; others are not read again for it."""
    positions = _waiting(tmp_path, 2, 4)
    positions.left([_put(2)])
    assert positions.empty(positions.undelivered()) == {"s/f"}
    positions.begin("s/")
    assert positions.end("s/f") == 2
    _putting(positions, 4)
    positions.left([_put(4)])
    assert (positions.safe_end("s/f"), positions.empty(positions.undelivered())) == (4, set())
    positions.close()


def test_what_a_note_speaks_of_is_on_the_disk_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a power cut would take the events back, and the note, which is forgotten with them, would not be theirs."""
    notes, done = FileNotes(str(tmp_path), "c"), list[str]()
    positions = KeptPositions(notes, lambda: done.append("sync"), ())
    monkeypatch.setattr(notes, "write_many", lambda _rows: done.append("note"))
    positions.put(Position("s/f", 4), 1)
    positions.leaving([_put(4).numbered(1)])
    assert done == ["sync", "note"]
    notes.close()
