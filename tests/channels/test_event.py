"""An event: what it is given, for good."""

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from producer.channels import Event


def test_an_event_is_what_it_was_given_and_stays_so() -> None:
    """By position and by name; it cannot be changed, travels to other processes, and its number is no part of it."""
    event = Event({"a": None}, b"x", 4)
    assert (event.headers, event.body, event.sequence) == ({"a": None}, b"x", 4)
    assert event == Event(body=b"x", headers={"a": None})
    assert pickle.loads(pickle.dumps(event)).sequence == 4
    assert replace(event, body=b"y") == Event({"a": None}, b"y")
    with pytest.raises(FrozenInstanceError):
        event.body = b"z"  # type: ignore[misc]


def test_events_share_no_headers() -> None:
    """Each that is made without any has its own."""
    assert Event() == Event({}, b"")
    assert Event().headers is not Event().headers
