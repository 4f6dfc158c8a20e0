"""The notes of a source's ledger, their cost, and forgotten names."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from producer.agent.events.batch import EventBatch, Position
from producer.agent.ledger.lanes import rules_of
from producer.agent.ledger.ledger import Ledger
from producer.testing import ManualClock

from ..doubles import file_channel, ledger_in, opened, taken


class _Touched(dict[str, Any]):
    looks = 0

    def __getitem__(self, key: str) -> Any:
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Any:
        self.looks += len(self)
        return super().__iter__()


class _Channel:
    name = "c"

    def __init__(self, *, keeps: bool, done: list[str] | None = None) -> None:
        self.keeps, self._done = keeps, [] if done is None else done

    def make_synced(self, _sequence: int) -> None:
        self._done.append("sync")


def _ledger(tmp_path: Path, *channels: str) -> Ledger:
    ledger = Ledger(tmp_path / "s", ManualClock())
    ledger.begin(rules_of(channels or ["c"], "", exclusive=False))
    return ledger


def _at(start: int, end: int, name: str = "s/f") -> Position:
    return Position(name, end, "", start)


def _batch(start: int, end: int, name: str = "s/f") -> EventBatch:
    return EventBatch.of_lines(b"%d\n" % end, position=_at(start, end, name))


def _put(ledger: Ledger, channel: _Channel, *positions: Position) -> None:
    for position in positions:
        ledger.putting(channel, position)
        ledger.put(channel, position, 1)


def test_a_flush_does_not_look_at_10_000_unchanged_names(tmp_path: Path) -> None:
    """A flush does not look at 10,000 unchanged names."""
    ledger = _ledger(tmp_path)
    for number in range(10_000):
        ledger.pass_over(_at(0, 1, f"s/{number}"))
    ledger.flush()
    (lane,) = ledger._lanes.values()
    lane.safe = counted = _Touched(lane.safe)
    for end in range(2, 12):
        ledger.pass_over(_at(end - 1, end, "s/7"))
        ledger.flush()
    assert counted.looks < 100
    assert ledger._notes.read("position:0:s/7") == b"11"
    ledger.close()


def test_a_failed_flush_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes that could not be written are written by the next flush."""
    ledger = _ledger(tmp_path)
    ledger.pass_over(_at(0, 4))
    with monkeypatch.context() as broken:

        def fail(_rows: Iterable[object]) -> None:
            raise OSError("the disk is full")

        broken.setattr(ledger._notes, "write_many", fail)
        with pytest.raises(OSError, match="full"):
            ledger.flush()
    ledger.close()
    again = _ledger(tmp_path)
    assert again.ends("s/f") == [4]
    again.close()


def test_the_position_of_a_forgotten_file_is_not_noted_again_when_its_last_batches_leave_the_channel(
    tmp_path: Path,
) -> None:
    """The position of a forgotten file is not noted again when its last batches leave the channel."""
    with opened(file_channel(tmp_path)) as channel:
        for end in (2, 4):
            channel.put(_batch(end - 2, end))
        channel.put(_batch(0, 3, "s/other"))
        ledger_in(channel).forget("s/f")
        assert len(taken(channel)) == 3
        channel.flush()
        assert ledger_in(channel).names() == {"s/other"}
    with opened(file_channel(tmp_path)) as channel:
        assert ledger_in(channel).names() == {"s/other"}
        channel.put(_batch(0, 6))
        taken(channel)
    with opened(file_channel(tmp_path)) as channel:
        assert ledger_in(channel).ends("s/f") == [6]


@pytest.mark.parametrize("keeps", [True, False])
def test_a_name_that_is_put_again_after_it_was_forgotten_is_known(tmp_path: Path, *, keeps: bool) -> None:
    """A name put again after it was forgotten counts, although an earlier batch still leaves the channel."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=keeps)
    _put(ledger, channel, _at(0, 8))
    ledger.forget("s/f")
    assert ledger.ends("s/f") == [0]
    _put(ledger, channel, _at(0, 2))
    ledger.leaving(channel, [(_at(0, 8), 1)]) if keeps else ledger.left(channel, [_at(0, 8)])
    assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([2], 2 if keeps else 0)
    ledger.close()


class _Lock:
    """A lock that reports when a thread waits for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock, self._waited_for = threading.Lock(), waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _note(ledger: Ledger, end: int) -> None:
    ledger.pass_over(_at(0, end))
    ledger.flush()


@pytest.mark.parametrize(
    ("later", "noted"),
    [
        (lambda ledger: _note(ledger, 8), b"8"),
        (lambda ledger: ledger.lost(_Channel(keeps=True), _at(2, 4), held=False), b"2"),
        (lambda ledger: ledger.forget("s/f"), None),
    ],
    ids=["more", "lost", "forgotten"],
)
def test_a_slow_writer_of_two_sinks_does_not_overwrite_the_newer_note_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: Callable[[Ledger], None], noted: bytes | None
) -> None:
    """A slow writer of two sinks does not overwrite the newer note of the other."""
    ledger, on_its_way = _ledger(tmp_path), threading.Event()
    ledger._writing = _Lock(on_its_way)  # type: ignore[assignment]

    def other() -> None:
        later(ledger)
        on_its_way.set()

    thread, write = threading.Thread(target=other), ledger._notes.write_many

    def slow(rows: Iterable[tuple[str, bytes, int]]) -> None:
        if thread.ident is None:
            thread.start()
            assert on_its_way.wait(60)
        write(rows)

    monkeypatch.setattr(ledger._notes, "write_many", slow)
    _note(ledger, 4)
    thread.join()
    assert ledger._notes.read("position:0:s/f") == noted
    ledger.close()


def test_a_failed_put_leaves_nothing_in_the_ledger(tmp_path: Path) -> None:
    """A failed put leaves nothing in the ledger."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=False)
    _put(ledger, channel, _at(0, 2))
    ledger.putting(channel, _at(2, 4))
    ledger.failed(channel, _at(2, 4))
    ledger.left(channel, [_at(0, 2)])
    assert (ledger.ends("s/f"), ledger.safe_end("s/f"), ledger._held) == ([2], 2, {"c": {"s/f": set()}})
    ledger.close()


def test_the_newest_that_is_found_lost_is_read_again_and_nothing_before_it(tmp_path: Path) -> None:
    """A damaged batch found at opening is read again only if it is the newest."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=True)
    _put(ledger, channel, _at(0, 2), _at(2, 4), _at(4, 6))
    assert not ledger.lost(channel, _at(2, 4), held=False)
    assert ledger.lost(channel, _at(4, 6), held=False)
    assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([4], 4)
    ledger.close()


def test_if_the_second_of_three_batches_is_lost_the_source_reads_it_again(tmp_path: Path) -> None:
    """If the second of three batches is lost, the source reads it again, and the third is still delivered."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=False)
    _put(ledger, channel, _at(0, 2), _at(2, 4), _at(4, 6))
    ledger.left(channel, [_at(0, 2)])
    assert ledger.lost(channel, _at(2, 4), held=True)
    assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([2, 4, 6], 2)
    _put(ledger, channel, _at(2, 4))
    ledger.left(channel, [_at(4, 6)])
    assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([6], 2)
    ledger.left(channel, [_at(2, 4)])
    assert ledger.safe_end("s/f") == 6
    ledger.close()


def test_a_batch_damaged_as_a_whole_whose_position_is_unknown_never_becomes_safe(tmp_path: Path) -> None:
    """A batch damaged as a whole, whose position is unknown, never becomes safe."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=False)
    _put(ledger, channel, _at(0, 2), _at(2, 4), _at(4, 6))
    ledger.left(channel, [_at(0, 2), _at(4, 6)])
    assert ledger.safe_end("s/f") == 2
    ledger.close()
    again = _ledger(tmp_path)
    assert again.ends("s/f") == [2, 4, 6]
    again.close()


def test_events_are_synced_before_a_note_counts_them_as_safe_so_that_a_power_cut_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are synced before a note counts them as safe, so that a power cut loses none."""
    done = list[str]()
    ledger, channel = _ledger(tmp_path), _Channel(keeps=True, done=done)
    monkeypatch.setattr(ledger._notes, "write_many", lambda _rows: done.append("note"))
    _put(ledger, channel, _at(0, 4))
    ledger.leaving(channel, [(_at(0, 4), 1)])
    assert done == ["sync", "note"]
    ledger.close()


def test_a_batch_of_a_channel_that_is_left_is_safe_once_it_was_delivered(tmp_path: Path) -> None:
    """A batch in a memory channel that the source no longer uses becomes safe when it is delivered."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=False)
    _put(ledger, channel, _at(0, 2))
    ledger.begin(rules_of(["d"], "", exclusive=False))
    assert (ledger.ends("s/f"), ledger.safe_end("s/f")) == ([2], 0)
    ledger.left(channel, [_at(0, 2)])
    assert ledger.safe_end("s/f") == 2
    ledger.close()


def test_rules_that_change_are_noted_before_the_next_batch(tmp_path: Path) -> None:
    """Changed rules are noted before the next batch, so that a crash does not apply the former ones to it."""
    ledger, channel = _ledger(tmp_path), _Channel(keeps=True)
    _note(ledger, 2)
    ledger.begin(rules_of(["c", "d"], "", exclusive=False))
    _put(ledger, channel, _at(2, 4))
    ledger._notes.close()
    again = Ledger(tmp_path / "s", ManualClock())
    again.find(channel, _at(2, 4))
    again.begin(rules_of(["c", "d"], "", exclusive=False))
    assert again.ends("s/f") == [2, 4]
    again.close()


def test_a_channel_that_is_gone_leaves_no_note(tmp_path: Path) -> None:
    """A forgotten name that is used again is not counted as in a channel that returns."""
    ledger = _ledger(tmp_path, "c", "d")
    _note(ledger, 8)
    ledger.begin(rules_of(["c"], "", exclusive=False))
    ledger.flush()
    ledger.forget("s/f")
    ledger.begin(rules_of(["c", "d"], "", exclusive=False))
    ledger.close()
    again = _ledger(tmp_path, "c", "d")
    assert (again.ends("s/f"), again._notes.items("position:")) == ([0], {})
    again.close()
