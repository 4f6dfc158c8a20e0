"""Deliveries of batches from a channel."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from producer.agent.events.batch import EventBatch
from producer.agent.flow.delivery import Delivery, Outgoing, State
from producer.agent.flow.letters import Letter
from producer.channels import Event

from ..doubles import file_channel, memory_channel, opened, taken

_TAKEN, _HELD, _DELIVERED, _RETURNED = State


def test_a_batch_that_has_ended_stays_so() -> None:
    """A delivered or returned batch never changes its state again."""
    changed = set()
    for before, after in product(State, State):
        one = Outgoing(None, Event({}, b""), EventBatch.of_bodies([b"a"]))  # type: ignore[arg-type]
        one.state = before
        try:
            one.become(after)
        except AssertionError:
            continue
        changed.add((before, after))
    assert changed == {(_TAKEN, state) for state in (_HELD, _DELIVERED, _RETURNED)} | {
        (_HELD, state) for state in (_DELIVERED, _RETURNED)
    }


@pytest.mark.parametrize("make", [file_channel, memory_channel])
def test_one_batch_of_a_delivery_is_delivered_one_returns(tmp_path: Path, make: Any) -> None:
    """One batch of a delivery is delivered, one returns, and one is held without its bytes until it is delivered."""
    with opened(make(tmp_path)) as channel:
        for body in (b"a", b"b", b"c"):
            channel.put(EventBatch.of_bodies([body]))
        delivery = channel.take(9, 99, 0)
        assert isinstance(delivery, Delivery)
        held = delivery.commit(delivery.batches[1:2], delivery.batches[2:])
        assert [(one.state, one.batch.size) for one in held] == [(_HELD, 0)]
        assert (channel.held, taken(channel), delivery.is_open) == (2, [b"b"], True)
        delivery.commit_one(held[0])
        assert (channel.held, held[0].state, delivery.is_open) == (0, _DELIVERED, False)


def test_if_one_of_two_events_is_delivered_and_the_sink_ends_only_the_other_is_in_the_channel(tmp_path: Path) -> None:
    """If one of two events is delivered and the sink ends, only the other is in the channel."""
    with opened(file_channel(tmp_path)) as channel:
        channel.put(EventBatch.of_lines(b"a\nb\n"))
        delivery = channel.take(9, 99, 0)
        (one,) = delivery.commit((), delivery.batches)  # type: ignore[union-attr]
        one.letters.append(Letter(EventBatch.of_bodies([b"b"]), {}))
        one.delivery.shorten(one)
        assert (taken(channel), channel.held, one.delivery.is_open) == ([b"b"], 0, False)
