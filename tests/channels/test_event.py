"""Events are immutable."""

import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from producer.channels import Event


def test_an_event_is_immutable_and_picklable_and_its_number_is_not_part_of_equality() -> None:
    """An event is immutable and picklable, and its number is not part of equality."""
    event = Event({"a": None}, b"x", 4)
    assert (event.headers, event.body, event.sequence) == ({"a": None}, b"x", 4)
    assert event == Event(body=b"x", headers={"a": None})
    assert pickle.loads(pickle.dumps(event)).sequence == 4
    assert replace(event, body=b"y") == Event({"a": None}, b"y")
    with pytest.raises(FrozenInstanceError):
        event.body = b"z"  # type: ignore[misc]


def test_events_share_no_headers() -> None:
    """Events without headers do not share a dict."""
    assert Event() == Event({}, b"")
    assert Event().headers is not Event().headers
