"""Unconfirmed batches of idempotent streams that are too large: nothing is stored twice, and no known outcome
is lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer import (
    AttemptError,
    BodyTooLargeError,
    NetworkError,
    SendFuture,
)
from producer.model.interfaces import Delivery, Receipt
from producer.pipeline.batching.unconfirmed import REFUSALS_BEFORE_SPLIT
from producer.pipeline.pipeline import Pipeline
from tests.durable.kit import values
from tests.support.clocks import JumpingClock
from tests.support.pipelines import (
    KEY,
    record,
    settle,
    threadless,
)
from tests.support.sequenced import Server

IDEMPOTENT = KEY._replace(order="idempotent")
DOWN = NetworkError("RequestError", "refused")
#: Stored, if its number allows, with a lost response.
LOST = NetworkError("RequestError", "no answer", may_have_been_stored=True)
TOO_LARGE = BodyTooLargeError("PostBodyTooLarge", "too large", http_status=413)


#: Lost before it was stored, which the sender cannot know.
DROPPED = NetworkError("RequestError", "no answer", may_have_been_stored=True)
#: Too large even with one log.
REFUSED = BodyTooLargeError("PostBodyTooLarge", "too large", http_status=413)


class Dropping(Server):
    """A server whose script may also have ``DROPPED`` and ``REFUSED``."""

    def write(self, delivery: Delivery) -> Receipt:
        if self.script and self.script[0] in (DROPPED, REFUSED):
            self.attempts.append(delivery)
            raise self.script.pop(0)  # type: ignore[misc]
        return super().write(delivery)


def sent(sink: Server, count: int, **options: object) -> tuple[Pipeline, list[SendFuture]]:
    """Send one batch of this many records, and do all work; return the pipeline and the futures."""
    pipeline = threadless(sink, JumpingClock(), batch_count_threshold=count, **options)
    futures = [pipeline.admission.accept(IDEMPOTENT, record(str(n)), 1, None) for n in range(count)]
    pipeline.flush(None)
    return pipeline, futures


def numbers(sink: Server) -> list[int]:
    """Return the sequence number of each attempt."""
    return [delivery.sequence.number for delivery in sink.attempts if delivery.sequence is not None]


def test_a_batch_that_was_stored_unheard_is_not_cut_when_it_is_found_too_large() -> None:
    """The whole batch is repeated under its number, and counts as written if the server knows the number."""
    sink = Server(LOST, TOO_LARGE)
    _, futures = sent(sink, 4)
    assert values(sink) == ["0", "1", "2", "3"]
    assert numbers(sink) == [1, 1, 1]
    assert all(future.result(0).already_written for future in futures)


def test_a_batch_in_doubt_that_stays_too_large_is_cut_and_its_first_half_tells_of_the_whole() -> None:
    """If the first half is accepted under the unconfirmed number, nothing was stored: the rest gets new numbers."""
    sink = Dropping(DROPPED, *[TOO_LARGE] * REFUSALS_BEFORE_SPLIT)
    _, futures = sent(sink, 4)
    assert values(sink) == ["0", "1", "2", "3"]
    assert sink.numbers() == [1, 2]
    assert not any(future.result(0).already_written for future in futures)


def test_a_first_half_that_is_known_shows_that_the_whole_was_stored() -> None:
    """The rest needs no request: it is written, too."""
    sink = Server(LOST, *[TOO_LARGE] * REFUSALS_BEFORE_SPLIT)
    pipeline, futures = sent(sink, 4)
    assert values(sink) == ["0", "1", "2", "3"]
    assert numbers(sink) == [1] * (2 + REFUSALS_BEFORE_SPLIT)
    assert all(future.result(0).already_written for future in futures)
    assert pipeline.stats().delivered == 4
    assert pipeline.budget.used == 0


@pytest.mark.parametrize(("whole", "half"), [(LOST, DROPPED), (DROPPED, LOST)])
def test_a_half_that_is_known_after_its_own_answer_was_lost_tells_nothing_of_the_rest(
    whole: AttemptError, half: AttemptError
) -> None:
    """Either the half or the whole was stored: the rest fails, may have been stored, and the stream stops."""
    sink = Dropping(whole, *[TOO_LARGE] * REFUSALS_BEFORE_SPLIT, half)
    pipeline, futures = sent(sink, 4)
    assert [future.exception(0) is None for future in futures] == [True, True, False, False]
    result = futures[3].exception(0).result  # type: ignore[union-attr]
    assert result.error_code == "InvalidSequenceId"
    assert "it is unknown whether" in result.error_message
    assert result.may_have_been_stored
    assert pipeline.stopped(IDEMPOTENT) is not None
    assert max(Counter(values(sink)).values()) == 1
    assert pipeline.budget.used == 0


def test_a_half_that_is_too_large_as_well_is_cut_further_under_the_number_in_doubt() -> None:
    """The answer to the final first part decides for all others."""
    for whole, known in ((LOST, True), (DROPPED, False)):
        sink = Dropping(whole, *[TOO_LARGE] * (REFUSALS_BEFORE_SPLIT + 1))
        _, futures = sent(sink, 8)
        assert values(sink) == [str(n) for n in range(8)]
        assert [future.result(0).already_written for future in futures] == [known] * 8
        assert sink.numbers() == ([1] if known else [1, 2, 3])


def test_the_whole_is_refused_and_split_an_unconfirmed_half_does_not_affect_the_other_one() -> None:
    """The whole is refused and split; an unconfirmed half does not affect the other one."""
    sink = Dropping(TOO_LARGE, LOST, *[TOO_LARGE] * REFUSALS_BEFORE_SPLIT)
    _, futures = sent(sink, 8)
    assert values(sink) == [str(n) for n in range(8)]
    assert [future.result(0).already_written for future in futures] == [True] * 4 + [False] * 4
    assert sink.numbers() == [1, 2]


def test_a_single_log_was_stored_without_confirmation_the_refusal_of_its_size_is_not_a_failure() -> None:
    """A single log was stored without confirmation: the refusal of its size is not a failure."""
    sink = Dropping(LOST, REFUSED)
    _, (future,) = sent(sink, 1)
    assert future.result(0).already_written
    assert values(sink) == ["0"]


def test_a_log_in_doubt_that_stays_too_large_fails_and_says_that_it_may_be_stored() -> None:
    """The log is repeated a few times, not forever."""
    sink = Dropping(DROPPED, *[REFUSED] * REFUSALS_BEFORE_SPLIT)
    _, (future,) = sent(sink, 1)
    result = future.exception(0).result  # type: ignore[union-attr]
    assert result.error_code == "PostBodyTooLarge"
    assert result.may_have_been_stored
    assert len(sink.attempts) == 1 + REFUSALS_BEFORE_SPLIT


def test_without_retries_left_the_batch_fails_and_may_have_been_stored() -> None:
    """Without retries left the batch fails, and may have been stored."""
    sink = Server(LOST, TOO_LARGE)
    _, futures = sent(sink, 2, retries=1)
    result = futures[0].exception(0).result  # type: ignore[union-attr]
    assert result.error_code == "PostBodyTooLarge"
    assert result.may_have_been_stored


STEPS = [None, DOWN, LOST, DROPPED, TOO_LARGE]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(STEPS), max_size=40), st.lists(st.integers(1, 9), min_size=1, max_size=3))
def test_whatever_happens_nothing_is_stored_twice_and_results_tell_the_truth(
    script: Sequence[AttemptError | None], batches: Sequence[int]
) -> None:
    """With random losses, refusals and splits, no record is stored twice, and all are in order.

    Every success is stored, and every failure that denies it is not.
    """
    sink = Dropping(*script)
    pipeline = threadless(sink, JumpingClock(), batch_count_threshold=1000, retries=1000)
    futures: list[SendFuture] = []
    for size in batches:
        for _ in range(size):
            futures.append(pipeline.admission.accept(IDEMPOTENT, record(str(len(futures))), 1, None))
        pipeline.accumulator.seal_open()
    for _ in range(1000):
        settle(pipeline)
        for batch in pipeline.retry_queue.take_due(math.inf):
            pipeline.resubmit(batch)
        if not pipeline.accumulator.incomplete():
            break
    stored = values(sink)
    assert len(stored) == len(set(stored))
    assert [int(value) for value in stored] == sorted(map(int, stored))
    for number, future in enumerate(futures):
        error = future.exception(0)
        if error is None:
            assert str(number) in stored
        elif not error.result.may_have_been_stored:  # type: ignore[attr-defined]
            assert str(number) not in stored
    assert pipeline.budget.used == 0
