"""python."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError, EventBatch, Position
from tests.agent.components import headers, interceptor, lines


def by_batch(batch):
    """Change a batch, as a user's function."""
    return batch.with_shared({"seen": "yes"})


def made_anew(batch):
    """Return a new batch without the position."""
    return EventBatch.of_bodies([body.upper() for body in batch.bodies()])


def by_event(given, body):
    """Change or drop an event, as a user's function."""
    return None if body == b"drop" else (given | {"size": str(len(body))}, body.upper())


def named_by_its_data(given, body):
    """Return headers named by the data, without limit."""
    return given | {"all": "yes", f"h{body.decode()}": "\u00e9"}, body


def to_nothing(batch):
    """Return None, which is invalid."""


def test_a_function_gets_batches():
    """A function for batches gets the whole batch; the position stays the source's."""
    batch = lines("a").at(Position("f", 3))
    after = interceptor("python", function=f"{__name__}:by_batch").intercept(batch)
    assert headers(after) == [{"seen": "yes"}]
    assert after.position == Position("f", 3)
    assert interceptor("python", function=f"{__name__}:made_anew").intercept(batch).position == Position("f", 3)


def test_a_function_gets_events():
    """A function for events changes headers and body, or drops the event."""
    after = interceptor("python", function=f"{__name__}:by_event", each="event").intercept(lines("a", "drop", "bc"))
    assert list(after.events()) == [({"size": "1"}, b"A"), ({"size": "2"}, b"BC")]


def test_if_each_event_has_a_header_of_its_own_all_are_kept_in_linear_memory():
    """If each event has a header of its own, all are kept in linear memory."""
    count = 5_000
    after = interceptor("python", function=f"{__name__}:named_by_its_data", each="event").intercept(
        lines(*map(str, range(count)))
    )
    found = list(after.headers())
    assert [each["all"] for each in found] == ["yes"] * count
    assert found[-1]["other_headers"] == f'{{"h{count - 1}": "\u00e9"}}'
    assert len(after.columns) * count <= (1 << 21) + 8 * 2 * count + count


def test_a_function_that_returns_something_other_than_a_batch_is_named_in_the_error():
    """A function that returns something other than a batch is named in the error."""
    with pytest.raises(TypeError, match="to_nothing must return an EventBatch, not NoneType"):
        interceptor("python", function=f"{__name__}:to_nothing").intercept(lines("a"))


@pytest.mark.parametrize("function", ["no_such_module:x", f"{__name__}:x", "", "os:sep"])
def test_a_function_that_there_is_not_is_refused(function):
    """A missing function is a configuration error."""
    with pytest.raises(AgentConfigError, match="function: must be"):
        interceptor("python", function=function)


@pytest.mark.parametrize(
    ("function", "each", "message"),
    [
        ("by_event", "batch", r"must be event: .*:by_event takes \(headers, body\), not \(batch\)"),
        ("by_batch", "event", r"must be batch: .*:by_batch takes \(batch\), not \(headers, body\)"),
    ],
)
def test_a_function_with_the_arguments_of_the_other_kind_is_refused_before_the_start(function, each, message):
    """A function with the arguments of the other kind is refused before the start."""
    with pytest.raises(AgentConfigError, match=message):
        interceptor("python", function=f"{__name__}:{function}", each=each)
