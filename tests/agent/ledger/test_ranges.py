"""Ranges behave like sets of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from producer.agent.ledger.ranges import Ranges, intersection, parse_ranges

_PLACES = st.integers(0, 12)
_STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), _PLACES, _PLACES))


@given(_STEPS)
def test_ranges_equal_a_set_after_additions_and_removals(steps: list[tuple[str, int, int]]) -> None:
    """After additions and removals the ranges have the same numbers as a set, and neither overlap nor touch."""
    ranges, known = Ranges(), set[int]()
    for step, start, end in steps:
        stretch = set(range(start + 1, end + 1))
        (ranges.add if step == "add" else ranges.remove)(start, end)
        known = known | stretch if step == "add" else known - stretch
    pairs = list(ranges)
    assert {number for start, end in pairs for number in range(start + 1, end + 1)} == known
    assert all(before[1] < after[0] for before, after in pairwise(pairs))
    first = next(number for number in range(1, 14) if number not in known) - 1
    assert ranges.first == first
    assert ranges.borders == sorted({number for pair in pairs for number in pair if number > first})
    assert list(parse_ranges(ranges.dump(100))) == pairs == list(ranges.copy())


@given(st.lists(st.lists(st.tuples(_PLACES, _PLACES)), min_size=1, max_size=3))
def test_an_intersection_has_the_numbers_of_all_sets(all_pairs: list[list[tuple[int, int]]]) -> None:
    """An intersection has the numbers that all sets have."""
    all_ranges, sets = [Ranges() for _ in all_pairs], [set[int]() for _ in all_pairs]
    for ranges, numbers, pairs in zip(all_ranges, sets, all_pairs, strict=True):
        for start, end in pairs:
            ranges.add(start, end)
            numbers.update(range(start + 1, end + 1))
    common = intersection(all_ranges)
    assert {number for start, end in common for number in range(start + 1, end + 1)} == set.intersection(*sets)


def test_a_note_has_only_the_first_ranges_a_note_of_an_earlier_version_can_be_read() -> None:
    """A note has only the first ranges; a note of an earlier version can be read."""
    ranges = Ranges()
    for start in range(0, 100, 2):
        ranges.add(start, start + 1)
    assert ranges.dump(2) == b"1 2-3 4-5"
    assert list(parse_ranges(b"7")) == [(0, 7)]
