"""EventQueue and pointers; Flume's TestFlumeEventQueue and TestFlumeEventPointer."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.channels.file.queue.event_queue import Columns, EventQueue
from producer.channels.file.store.pointers import Entry, pointer_to

SIZE = 10


def filled(count: int, *, each: int = 1, per_segment: int = 10) -> EventQueue:
    """Return a queue of events 1 to ``count``, ``each`` in a transaction, ``per_segment`` in a segment."""
    queue = EventQueue()
    for first in range(1, count + 1, each):
        numbers = range(first, min(first + each, count + 1))
        segment = 1 + (first - 1) // per_segment
        queue.append(first, segment, [640 + 50 * number for number in numbers], [SIZE] * len(numbers), 100.0 + first)
    return queue


def needed(queue: EventQueue) -> set[int]:
    """Return the segments of the queue's events."""
    return queue.snapshot(1 << 63).segments()


def sequences(entries: list[Entry]) -> list[int]:
    return [entry.sequence for entry in entries]


def test_a_pointer_holds_segment_and_offset() -> None:
    """A pointer returns its segment and offset, up to their limits."""
    for segment, offset in ((0, 0), (1, 640), (7, (1 << 32) - 1), ((1 << 32) - 1, 5)):
        entry = Entry(1, pointer_to(segment, offset), 10, 1.0)
        assert (entry.segment, entry.offset) == (segment, offset)
        assert entry.pointer == segment << 32 | offset
    assert pointer_to(1, 2) == pointer_to(1, 2)
    assert len({pointer_to(1, 2), pointer_to(1, 2), pointer_to(2, 1), pointer_to(2, 2)}) == 3
    assert Entry(1, pointer_to(1, 2), 3, 4.0) == Entry(1, pointer_to(1, 2), 3, 4.0)


def test_a_new_queue_is_empty() -> None:
    """A new queue has no events, takes, segments or oldest time."""
    queue = EventQueue()
    assert (len(queue), queue.taken, needed(queue), queue.oldest) == (0, {}, set(), None)
    assert queue.take(5, None, {}) == []
    assert len(queue.snapshot(1 << 63)) == 0


@pytest.mark.parametrize("count", [1, 2, 10_000])
def test_events_leave_at_the_head_in_the_order_of_the_tail(count: int) -> None:
    """Events leave in order, and their segments stay needed until then."""
    queue = filled(count)
    assert len(queue) == count
    assert needed(queue) == {1 + number // 10 for number in range(count)}
    taken: list[int] = []
    while entries := queue.take(7, None, {}):
        assert needed(queue)
        taken += sequences(entries)
        queue.remove(sequences(entries))
        assert queue.sums() == (count - len(taken), SIZE * (count - len(taken)))
    assert taken == list(range(1, count + 1))
    assert (len(queue), needed(queue), queue.taken) == (0, set(), {})


@pytest.mark.parametrize("count", [1, 2, 5_000])
def test_events_given_back_in_any_order_are_at_the_head_again_in_order(count: int) -> None:
    """Events given back in any order are at the head again, in order."""
    queue = filled(count + 3)
    entries = queue.take(count, None, {})
    assert len(queue) == 3
    before = needed(queue)
    queue.put_back(reversed(entries))
    assert (len(queue), queue.taken, needed(queue)) == (count + 3, {}, before)
    assert sequences(queue.take(count + 3, None, {})) == list(range(1, count + 4))


def test_removing_an_event_that_is_not_taken_is_an_error_and_changes_nothing() -> None:
    """Removing an event that is not taken is an error and changes nothing."""
    queue = filled(3)
    queue.take(1, None, {})
    for wrong in (2, 99):
        with pytest.raises(KeyError):
            queue.remove([wrong])
    queue.remove([1])
    with pytest.raises(KeyError):
        queue.remove([1])
    assert (len(queue), needed(queue)) == (2, {1})


def test_a_segment_is_needed_until_its_last_event_is_gone() -> None:
    """Queued, taken and returned events keep their segment needed; removed ones do not."""
    queue = filled(4, per_segment=2)
    assert needed(queue) == {1, 2}
    first, second, third = queue.take(3, None, {})
    assert needed(queue) == {1, 2}
    queue.remove([first.sequence])
    queue.put_back([second])
    assert needed(queue) == {1, 2}
    queue.remove([third.sequence])
    assert needed(queue) == {1, 2}
    queue.remove(sequences(queue.take(1, None, {})))
    assert needed(queue) == {2}


def test_the_columns_are_cut_and_nothing_moves() -> None:
    """Long use with a short queue keeps memory small and the order right."""
    queue = EventQueue()
    next_put = next_take = 1
    for _ in range(3_000):
        queue.append(next_put, 1, [640] * 10, [SIZE] * 10, 0.0)
        next_put += 10
        entries = queue.take(10, None, {})
        assert sequences(entries) == list(range(next_take, next_take + 10))
        queue.remove(sequences(entries))
        next_take += 10
    assert len(queue._columns) < 10_000
    assert len(queue) == 0


def test_an_event_takes_28_bytes_and_a_little() -> None:
    """A million events need about 30 MB."""
    queue = filled(100_000, each=1000, per_segment=10_000)
    columns = queue._columns
    size = sum(map(sys.getsizeof, (columns.sequences, columns.pointers, columns.lengths, columns.times)))
    assert size < 100_000 * 28 * 1.2


def test_the_age_is_that_of_the_oldest_event_not_taken() -> None:
    """The age is that of the oldest queued event, including returned ones."""
    queue = filled(3)
    assert queue.oldest == 101.0
    (first,) = queue.take(1, None, {})
    assert queue.oldest == 102.0
    queue.put_back([first])
    assert queue.oldest == 101.0
    queue.remove(sequences(queue.take(3, None, {})))
    assert queue.oldest is None


@pytest.mark.parametrize(
    ("max_bytes", "given", "expected"),
    [(0, 0, [1]), (5, 0, [1]), (20, 0, [1, 2]), (29, 0, [1, 2]), (30, 0, [1, 2, 3]), (35, 4, [1, 2, 3]), (15, 4, [1])],
)
def test_a_take_limited_in_bytes_leaves_the_other_events_in_place_returned_ones_included(
    max_bytes: int, given: int, expected: list[int]
) -> None:
    """A take limited in bytes leaves the other events in place, returned ones included."""
    queue = filled(6)
    queue.put_back(queue.take(given, None, {}))
    assert sequences(queue.take(4, max_bytes, {})) == expected
    assert len(queue) == 6 - len(expected)
    assert sequences(queue.take(10, None, {})) == list(range(len(expected) + 1, 7))


def test_a_snapshot_holds_queued_taken_and_returned_events_up_to_a_log_position_and_does_not_change() -> None:
    """A snapshot holds queued, taken and returned events up to a log position, and does not change."""
    queue = filled(10, per_segment=5)
    first = queue.take(2, None, {})
    second = queue.take(2, None, {})
    queue.put_back(first)
    snapshot = queue.snapshot(pointer_to(2, 640 + 50 * 9))
    assert list(snapshot.sequences) == list(range(1, 9))
    assert list(snapshot.pointers) == [pointer_to(1 + (n - 1) // 5, 640 + 50 * n) for n in range(1, 9)]
    assert list(snapshot.times) == [100.0 + n for n in range(1, 9)]
    assert list(snapshot.lengths) == [SIZE] * 8
    queue.remove(sequences(second))
    queue.append(11, 9, [640], [SIZE], 0.0)
    assert list(snapshot.sequences) == list(range(1, 9))
    assert list(queue.snapshot(1 << 63).sequences) == [1, 2, *range(5, 12)]


def test_a_restored_snapshot_has_the_same_order_sizes_and_segments() -> None:
    """A restored snapshot has the same order, sizes and segments."""
    queue = filled(10, per_segment=5)
    queue.take(3, None, {})
    again = EventQueue()
    again.restore(queue.snapshot(1 << 63))
    assert again.sums() == (10, 10 * SIZE)
    assert (len(again), again.taken, needed(again)) == (10, {}, {1, 2})
    assert sequences(again.take(20, None, {})) == list(range(1, 11))


def test_events_that_were_written_again_are_found_in_their_new_place() -> None:
    """Rewritten events get new pointers, whether queued, taken or returned."""
    queue = filled(6, per_segment=3)
    taken = queue.take(4, None, {})
    queue.put_back(taken[:2])
    queue.repoint({number: pointer_to(9, number) for number in (1, 3, 5)} | {99: 5})
    assert needed(queue) == {1, 2, 9}
    assert queue.taken[3].segment == 9
    assert queue.taken[4].segment == 2
    queue.put_back([taken[2], taken[3]])  # with the old pointers: the new ones count
    assert [(entry.sequence, entry.segment) for entry in queue.take(6, None, {})] == [
        (1, 9),
        (2, 1),
        (3, 9),
        (4, 2),
        (5, 9),
        (6, 2),
    ]


@given(st.sets(st.integers(0, 60)))
def test_ranges_are_rows_of_consecutive_sequence_numbers(numbers: set[int]) -> None:
    """Ranges cover every number once, with a gap between any two."""
    columns = Columns()
    for number in sorted(numbers):
        columns.append(Entry(number, pointer_to(number % 5, 640), 1, 1.0))
    ranges = columns.ranges()
    assert [number for first, last in ranges for number in range(first, last + 1)] == sorted(numbers)
    assert all(ranges[place][1] + 1 < ranges[place + 1][0] for place in range(len(ranges) - 1))
    assert columns.segments() == {number % 5 for number in numbers}


def test_columns_are_cut_at_both_ends() -> None:
    """Copies of columns are independent."""
    columns = Columns()
    columns.extend(range(5), range(5), range(5), [1.0] * 5)
    columns.append(Entry(5, 5, 5, 2.0))
    copy = columns.after(2)
    columns = columns.after(1)
    columns.keep(2)
    assert list(columns.sequences) == [1, 2]
    assert list(copy.sequences) == [2, 3, 4, 5]
    assert copy.entries(3, 9) == [Entry(5, 5, 5, 2.0)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "take", "back", "remove"]), st.integers(1, 6), st.integers(0, 100)),
        max_size=60,
    )
)
def test_any_history_of_puts_takes_returns_and_removals_agrees_with_a_sorted_list(
    steps: list[tuple[str, int, int]],
) -> None:
    """Any history of puts, takes, returns and removals agrees with a sorted list."""
    queue, queued, taken, number = EventQueue(), [], [], 0
    for step, count, which in steps:
        if step == "put":
            queue.append(number + 1, 1 + number // 7, list(range(count)), [SIZE] * count, 0.0)
            queued += [(number + 1 + place, 1 + number // 7) for place in range(count)]
            number += count
        elif step == "take":
            assert sequences(queue.take(count, None, {})) == [sequence for sequence, _ in queued[:count]]
            taken += queued[:count]
            del queued[:count]
        elif taken:
            chosen = [taken.pop(which % len(taken)) for _ in range(min(count, len(taken)))]
            if step == "back":
                queue.put_back([queue.taken[sequence] for sequence, _ in chosen])
                queued = sorted([*queued, *chosen])
            else:
                queue.remove([sequence for sequence, _ in chosen])
        assert len(queue) == len(queued)
        assert queue.sums() == (len(queued) + len(taken), SIZE * (len(queued) + len(taken)))
        assert needed(queue) == {segment for _, segment in (*queued, *taken)}
        assert list(queue.snapshot(1 << 63).sequences) == sorted(sequence for sequence, _ in (*queued, *taken))
