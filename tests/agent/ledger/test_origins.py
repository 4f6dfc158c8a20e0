"""Origins identify the numbers of batches for destinations."""

import shutil
from pathlib import Path

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.ledger.number_epochs import kept_origins
from producer.channels.file.store.notes import FileNotes

from ..doubles import file_channel, memory_channel, opened


def _lives(state: Path, *puts: bytes, take: bool = False) -> dict[tuple[str | None, int | None], bytes]:
    """Return the batches of one life of a channel, by origin and number."""
    with opened(file_channel(state)) as channel:
        for line in puts:
            channel.put(EventBatch.of_lines(line))
        taking = channel.take(1000, 1 << 20, 0)
        assert taking is not None
        found = {(batch.origin, batch.sequence): batch.block for batch in taking.batches}
        if take:
            taking.commit()
        else:
            taking.rollback()
    return found


def test_a_batch_keeps_its_name_and_number(tmp_path: Path) -> None:
    """A batch keeps its origin and number however often its channel is opened."""
    first = _lives(tmp_path, b"a\n", b"b\n")
    second = _lives(tmp_path, b"c\n")
    third = _lives(tmp_path, take=True)
    fourth = _lives(tmp_path, b"d\n")

    assert second.items() >= first.items()
    assert third == second
    assert len(third) == 3
    assert not fourth.keys() & third.keys()


@pytest.mark.parametrize("take", [False, True])
def test_numbers_of_a_restored_channel_have_another_name(tmp_path: Path, take: bool) -> None:
    """A channel restored from a copy assigns numbers again under a new origin."""
    state, copy = tmp_path / "state", tmp_path / "copy"
    kept = _lives(state, b"a\n", take=take)
    shutil.copytree(state, copy)
    delivered = _lives(state, b"b\n", b"c\n")
    shutil.rmtree(state)
    copy.rename(state)
    again = _lives(state, b"d\n", b"e\n")

    assert {name for name in again if name in delivered} == (set() if take else kept.keys())


def test_numbers_that_are_given_again_have_a_name_that_none_had(tmp_path: Path) -> None:
    """Numbers assigned again get a new origin, and lower numbers keep theirs."""
    notes = FileNotes(str(tmp_path), "c")
    earlier = [kept_origins("c", notes, 1, following, "first") for following in (1, 100, 1207, 2000)]
    restored = kept_origins("c", notes, 1, 500, "first")
    known = {each.of(number) for each in earlier for number in range(1, 2100)}
    assert not {restored.of(number) for number in range(500, 2100)} & known
    assert [restored.of(number) for number in (50, 499)] == [earlier[-1].of(number) for number in (50, 499)]
    notes.close()


def test_numbers_of_a_damaged_channel_have_another_name(tmp_path: Path) -> None:
    """A channel that lost its newest events assigns their numbers under a new origin."""
    delivered = _lives(tmp_path, b"a\n", b"b\n", b"c\n")
    for path in (tmp_path / "c" / "events").iterdir():
        if path.name.startswith("checkpoint"):
            path.unlink()
        elif path.name.startswith("log-"):
            path.write_bytes(path.read_bytes().replace(b"c\n", b"C\n").replace(b"b\n", b"B\n"))
    again = _lives(tmp_path, b"d\n", b"e\n", b"f\n")

    assert [again[name] for name in again.keys() & delivered.keys()] in ([], [b"a\n"])
    assert {b"d\n", b"e\n", b"f\n"} <= set(again.values())


def test_origins_without_numbers_in_the_channel_are_removed(tmp_path: Path) -> None:
    """Origins without numbers in the channel are removed."""
    for _ in range(5):
        _lives(tmp_path, b"a\n", take=True)
    with opened(file_channel(tmp_path)) as channel:
        notes = channel.channel.notes  # type: ignore[attr-defined]
        assert len(notes.items("origin:")) == 1


def test_a_channel_that_forgets_has_a_name_for_its_life(tmp_path: Path) -> None:
    """A channel that does not keep events has a new origin in each life."""
    names = set()
    for _ in range(2):
        with opened(memory_channel(tmp_path)) as channel:
            channel.put(EventBatch.of_lines(b"a\n"))
            taking = channel.take(10, 100, 0)
            assert taking is not None
            names.add(taking.batches[0].origin)
            taking.commit()
    assert len(names) == 2
    assert None not in names


def test_missing_notes_of_a_channel_are_reported_with_the_possible_duplicates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Missing notes of a channel are reported, with the possible duplicates."""
    _lives(tmp_path, b"a\n", take=True)
    _lives(tmp_path, b"b\n", take=True)
    assert not caplog.records
    for path in (tmp_path / "c" / "events").glob("notes.db*"):
        path.unlink()
    _lives(tmp_path, b"c\n", take=True)

    told = "channel c: its notes are missing: batches in flight at its last end may be stored twice"
    assert [record.message for record in caplog.records] == [told]
