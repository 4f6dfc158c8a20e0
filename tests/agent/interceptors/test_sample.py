"""sample."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError, EventBatch
from tests.agent.components import interceptor, lines


def test_a_share_stays():
    """About the given share of the events passes; for 0 none, for 1 all."""
    batch = lines(*map(str, range(10_000)))
    assert 2_600 < interceptor("sample", share=0.3).intercept(batch).count < 3_400
    assert interceptor("sample", share=0).intercept(batch).count == 0
    assert interceptor("sample", share=1.0).intercept(batch) is batch


def test_events_of_one_value_stay_or_go_together():
    """With by, all events of a value pass or none does, in every process."""
    batch = EventBatch.of_events([({"trace": str(number % 100)}, b"") for number in range(1000)])
    kept = {each["trace"] for each in interceptor("sample", share=0.5, by="trace").intercept(batch).headers()}
    assert 30 < len(kept) < 70
    assert interceptor("sample", share=0.5, by="trace").intercept(batch).count == 10 * len(kept)


def test_a_share_is_between_none_and_all():
    """A share above 1 is a configuration error."""
    with pytest.raises(AgentConfigError, match="must be a number from 0 to 1"):
        interceptor("sample", share=2)
