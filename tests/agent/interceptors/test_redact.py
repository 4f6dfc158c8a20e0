"""redact."""

from __future__ import annotations

import pytest

from producer.agent import AgentConfigError, EventBatch
from tests.agent.components import headers, interceptor, lines


@pytest.mark.parametrize(
    ("kind", "text", "after"),
    [
        ("email", "to a.b+c@mail.example.org, x", "to ***, x"),
        ("ipv4", "from 192.168.0.255:80 to 1.2.3.4.5 and 256.1.1.1", "from ***:80 to 1.2.3.4.5 and 256.1.1.1"),
        ("card", "4111 1111 1111 1111, 4111-1111-1111-1112", "***, 4111-1111-1111-1112"),
        ("card", "id 1234567890123456789012", "id 1234567890123456789012"),
        ("bearer", "Authorization: Bearer abc.DEF-1==", "Authorization: Bearer ***"),
        ("password", 'password=hunter2&x=1 "token": "a b" pwd: y', 'password=***&x=1 "token": *** pwd: ***'),
    ],
)
def test_known_kinds_are_blacked_out(kind, text, after):
    """Each known kind finds what it names, leaves the rest, and leaves what only looks like it."""
    assert interceptor("redact", kinds=[kind]).intercept(lines(text, "plain")).bodies() == [after.encode(), b"plain"]


def test_of_a_pattern_with_groups_only_the_groups_go():
    """An own pattern is blacked out whole, or where it has groups, those."""
    made = interceptor("redact", patterns=[r"user=(\w+) (\w+)?", "secret"], replacement="#")
    assert made.intercept(lines("user=joe x secret", "user=ann ")).bodies() == [b"user=# # #", b"user=# "]


def test_headers_are_blacked_out_where_they_are_named():
    """Headers are looked at only if they are named, be their values the same for all events or not."""
    batch = EventBatch.of_events(
        [({"a": "x@y.zz", "b": "x@y.zz"}, b"1"), ({"a": "x@y.zz", "b": "no"}, b"2"), ({}, b"3")]
    )
    after = headers(interceptor("redact", kinds=["email"], headers=["a", "none"]).intercept(batch))
    assert after == [{"a": "***", "b": "x@y.zz"}, {"a": "***", "b": "no"}, {}]
    assert headers(interceptor("redact", kinds=["email"], headers=["a"]).intercept(lines("1", a="x@y.zz"))) == [
        {"a": "***"}
    ]


def test_a_batch_without_anything_of_it_is_the_same():
    """Where nothing is found the batch is passed on as it is."""
    batch = lines("a")
    assert interceptor("redact", kinds=["email"]).intercept(batch) is batch


def test_there_is_something_to_look_for():
    """Neither a kind nor a pattern, or a kind that there is not, is an error of the configuration."""
    with pytest.raises(AgentConfigError, match="must name what is blacked out"):
        interceptor("redact")
    with pytest.raises(AgentConfigError, match="must be some of email"):
        interceptor("redact", kinds=["mail"])
