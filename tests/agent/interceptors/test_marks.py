"""timestamp, host, static, uuid and remove_header."""

from __future__ import annotations

import re
import socket

import pytest

from producer.agent import AgentConfigError, EventBatch
from producer.testing import ManualClock
from tests.agent.components import bodies, headers, interceptor, lines, made_of_flume

_MARKS = [
    ("timestamp", {"header_name": "h"}),
    ("host", {"host_header": "h"}),
    ("static", {"key": "h", "preserve_existing": False}),
    ("remove_header", {"with_name": "h"}),
]


@pytest.mark.parametrize(("name", "options"), _MARKS)
def test_a_mark_costs_the_same_for_any_number_of_events(name, options):
    """A header with one value is shared: no column is made, and the block is the same object."""
    batch = lines("a", "b", other="o")
    after = interceptor(name, **options).intercept(batch)
    assert after.block is batch.block
    assert after.ends is None
    assert not after.columns
    assert after.shared["other"] == "o"


@pytest.mark.parametrize(("name", "options"), _MARKS[:3])
@pytest.mark.parametrize("preserve", [True, False])
def test_with_preserve_existing_events_keep_an_existing_header_and_only_the_others_get_one(name, options, preserve):
    """With preserve_existing events keep an existing header, and only the others get one."""
    made = interceptor(name, ManualClock(), **options | {"preserve_existing": preserve})
    (given,) = headers(made.intercept(lines("a")))
    new = given["h"]
    assert headers(made.intercept(lines("a", h="old"))) == [{"h": "old" if preserve else new}]
    mixed = EventBatch.of_events([({"h": "old"}, b"a"), ({}, b"b")])
    assert [each["h"] for each in headers(made.intercept(mixed))] == (["old", new] if preserve else [new, new])


def test_the_time_is_in_milliseconds():
    """timestamp's header is the clock's time in whole milliseconds since the epoch."""
    assert headers(interceptor("timestamp", ManualClock(12.3456)).intercept(lines("a"))) == [{"timestamp": "12345"}]


def test_the_host_is_an_address_or_a_name():
    """host is the address that others see, or the name; Flume's option for it is useIP."""
    (by_address,) = headers(interceptor("host").intercept(lines("a")))
    assert re.fullmatch(r"[\d.]+|[0-9a-f:]+", by_address["host"])
    (by_name,) = headers(made_of_flume("interceptors", "host", useIP="false", hostHeader="n").intercept(lines("a")))
    assert by_name == {"n": socket.getfqdn()}


def test_static_has_flumes_defaults():
    """static without options adds key = value, as in Flume."""
    assert headers(interceptor("static").intercept(lines("a"))) == [{"key": "value"}]


@pytest.mark.parametrize("batch", [lines("a", "b", "c"), bodies("a\nb", "", "c")])
def test_each_event_gets_a_uuid_of_its_own(batch):
    """uuid gives every event another random UUID of version 4, with the prefix."""
    found = [each["id"] for each in headers(interceptor("uuid", prefix="x-").intercept(batch))]
    assert len(set(found)) == 3
    assert all(
        re.fullmatch(r"x-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", each) for each in found
    )


def test_uuid_keeps_an_existing_id_with_preserve_existing_false_it_replaces_it():
    """uuid keeps an existing id; with preserve_existing = false it replaces it."""
    assert headers(interceptor("uuid").intercept(lines("a", id="1"))) == [{"id": "1"}]
    mixed = interceptor("uuid").intercept(EventBatch.of_events([({"id": "1"}, b"a"), ({}, b"b")]))
    assert [each["id"] == "1" for each in headers(mixed)] == [True, False]
    assert headers(interceptor("uuid", preserve_existing=False).intercept(lines("a", id="1"))) != [{"id": "1"}]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"withName": "a1"}, {"a2", "b1"}),
        ({"fromList": "a1 , b1"}, {"a2"}),
        ({"fromList": "a1;b1", "fromListSeparator": ";"}, {"a2"}),
        ({"matching": "a."}, {"b1"}),
        ({"matching": "1"}, {"a1", "a2", "b1"}),
        ({"withName": "b1", "matching": "a1"}, {"a2"}),
        ({}, {"a1", "a2", "b1"}),
    ],
)
def test_headers_go_by_name_list_or_pattern(options, left):
    """remove_header removes headers by name, list or whole match, shared or not."""
    batch = EventBatch.of_events([({"a1": "x", "a2": "y", "b1": "z"}, b"1"), ({"a1": "other"}, b"2")])
    after = made_of_flume("interceptors", "remove_header", **options).intercept(batch)
    assert set(headers(after)[0]) == left


def test_an_invalid_regular_expression_is_a_configuration_error_with_the_options_name_and_the_reason():
    """An invalid regular expression is a configuration error with the option's name and the reason."""
    with pytest.raises(AgentConfigError, match=r"matching: must be a regular expression: .*unterminated"):
        interceptor("remove_header", matching="(")
