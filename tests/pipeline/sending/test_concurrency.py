"""AdaptiveLimit grows, falls, and ignores noise."""

from __future__ import annotations

import random

import pytest

from producer.pipeline.sending.concurrency import AdaptiveLimit


class Driven:
    """A limit that is always fully used, and a clock."""

    def __init__(self, most: int, *, adaptive: bool = True) -> None:
        self.limit = AdaptiveLimit(most, adaptive=adaptive)
        self.now = 0.0

    def answers(self, count: int, *seconds: float) -> None:
        """Give this many responses, each with the next of these latencies."""
        for n in range(count):
            self.limit.used(self.limit.value)
            began, took = self.now, seconds[n % len(seconds)]
            self.now += took / self.limit.value
            self.limit.accepted(began, self.now, took)

    def refusal(self, keep: float = 0.5) -> None:
        """Refuse one attempt."""
        self.now += 0.001
        self.limit.refused(self.now, self.now + 0.001, keep)
        self.now += 0.002


def untouched(limit: AdaptiveLimit) -> bool:
    """Return True if the limit is at its most."""
    return limit.value == limit._most


def test_it_begins_with_all_and_keeps_it_while_answers_come_as_ever() -> None:
    """Equal and noisy latencies do not lower the limit, except for one short measurement at the beginning."""
    one, rng, values = Driven(16), random.Random(5), []
    for _ in range(3000):
        one.answers(1, 0.1 * rng.lognormvariate(0.0, 0.4))
        values.append(one.limit.value)
    assert values[:15] == [16] * 15
    assert 8 <= sum(value < 16 for value in values) <= 9
    assert untouched(one.limit)


def test_sixteen_attempts_refused_together_halve_the_limit_once() -> None:
    """Sixteen attempts refused together halve the limit once; a later one halves it again, never below one."""
    one = Driven(16)
    one.now = 1.0
    for n in range(16):
        one.limit.refused(0.5, 1.0 + n, 0.5)
    assert one.limit.value == 8
    one.now = 20.0
    values = []
    for _ in range(6):
        one.refusal()
        values.append(one.limit.value)
    assert values == [4, 2, 1, 1, 1, 1]


def test_it_grows_by_one_for_each_round_of_answers() -> None:
    """After a fall, each round of as many responses as the limit (four at least) adds one, up to the most."""
    one = Driven(8)
    one.refusal(0.25)
    rounds = []
    for _ in range(15):
        one.answers(1, 0.1)
        rounds.append(one.limit.value)
    assert rounds == [2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5]
    one.answers(60, 0.1)
    assert untouched(one.limit)


def test_responses_alone_do_not_raise_a_limit_that_is_not_fully_used() -> None:
    """Responses alone do not raise a limit that is not fully used."""
    one = Driven(8)
    one.refusal(0.5)
    for n in range(100):
        one.limit.used(1)
        one.limit.accepted(one.now + n, one.now + n + 0.1, 0.1)
    assert one.limit.value == 4


def test_a_latency_of_four_times_the_base_in_two_windows_lowers_the_limit_to_eight_which_is_half() -> None:
    """At a limit of 16, a latency of four times the base in two windows lowers the limit to eight, which is half.

    A latency of twice the base then lowers it no further.
    """
    one = Driven(16)
    one.answers(64, 0.1)
    one.answers(20, 0.4)
    assert one.limit.value == 16
    one.answers(16, 0.4)
    assert one.limit.value == 8
    one.answers(64, 0.2)
    assert one.limit.value == 8


def test_latency_alone_takes_all_but_two() -> None:
    """Latency alone leaves two attempts; only refusals leave one."""
    one = Driven(16)
    one.answers(16, 0.1)
    values = []
    for _ in range(40):
        one.answers(5, 3.0)
        values.append(one.limit.value)
        if one.now > 9:
            break
    assert min(values) >= 2


@pytest.mark.parametrize("latencies", [(0.002, 0.09), (0.1, 0.19)])
def test_a_longer_latency_within_the_tolerance_changes_nothing(latencies: tuple[float, float]) -> None:
    """A delay below twice the base, or less than a tenth of a second above it, does not count as a queue."""
    usual, longer = latencies
    one = Driven(16)
    one.answers(64, usual)
    one.answers(64, longer)
    assert untouched(one.limit)


def test_a_few_outliers_change_nothing() -> None:
    """Seven of sixteen responses may take a hundred times as long: the median does not change."""
    one = Driven(16)
    one.answers(160, *[0.1] * 9, *[10.0] * 7)
    assert one.limit.value == 16


def test_a_latency_that_stays_becomes_the_base_and_the_limit_comes_back() -> None:
    """If the other side is permanently slower, a measurement with a lowered limit finds the new base."""
    one = Driven(16)
    one.answers(64, 0.1)
    lowest = 16
    while one.now < 120.0:
        one.answers(1, 0.5)
        lowest = min(lowest, one.limit.value)
    assert lowest <= 2
    assert untouched(one.limit)


def test_if_the_base_was_not_seen_for_ten_seconds_the_limit_is_lowered_for_eight_responses() -> None:
    """If the base was not seen for ten seconds, the limit is lowered for eight responses."""
    one = Driven(16)
    one.answers(64, 0.1)
    values = []
    while one.now < 14.0:
        one.answers(1, 0.1 if one.limit.value < 16 else 0.18)
        values.append(one.limit.value)
    lowered = [value for value in values if value < 16]
    assert 8 <= len(lowered) <= 9
    assert set(lowered) == {4}
    assert values[-1] == 16


def test_responses_to_attempts_that_began_before_a_fall_do_not_count_for_the_new_limit() -> None:
    """Responses to attempts that began before a fall do not count for the new limit."""
    one = Driven(16)
    one.answers(64, 0.1)
    one.refusal(0.5)
    for n in range(200):
        one.limit.used(8)
        one.limit.accepted(0.0, one.now + n, 5.0)
        one.limit.refused(0.0, one.now + n, 0.5)
    assert one.limit.value == 8


def test_switched_off_it_stays_where_it_is() -> None:
    """With adaptive_concurrency=False the limit is constant."""
    one = Driven(16, adaptive=False)
    one.answers(64, 0.1)
    one.answers(64, 9.0)
    one.refusal()
    assert untouched(one.limit)
