"""sample."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError, EventBatch
from tests.agent.components import interceptor, lines


def test_a_share_stays():
    """About the given share of the events stays; of 0 none, of 1 all."""
    batch = lines(*map(str, range(10_000)))
    assert 2_600 < interceptor("sample", share=0.3).intercept(batch).count < 3_400
    assert interceptor("sample", share=0).intercept(batch).count == 0
    assert interceptor("sample", share=1.0).intercept(batch) is batch


def test_events_of_one_value_stay_or_go_together():
    """By a header, all events of a value stay or all go, in this process and in others."""
    batch = EventBatch.of_events([({"trace": str(number % 100)}, b"") for number in range(1000)])
    kept = {each["trace"] for each in interceptor("sample", share=0.5, by="trace").intercept(batch).headers()}
    assert 30 < len(kept) < 70
    assert interceptor("sample", share=0.5, by="trace").intercept(batch).count == 10 * len(kept)


def test_a_share_is_between_none_and_all():
    """A share beyond 1 is an error of the configuration."""
    with pytest.raises(AgentConfigError, match="must be a number from 0 to 1"):
        interceptor("sample", share=2)
