"""redact."""

from __future__ import annotations

import itertools
import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.agent import AgentConfigError, EventBatch
from tests.agent.components import headers, interceptor, lines

_CORPUS = tomllib.loads(Path(__file__).with_name("redact_corpus.toml").read_text())


def _lines(kind: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a kind's corpus, with the expected result."""
    given = _CORPUS[kind]
    for frame, value in itertools.product(given["frames"], given["values"]):
        quoted = re.sub(r"b?(\\*['\"])@\1", "@", frame) if kind == "password" else frame  # replaced with its quotes
        yield frame.replace("@", value), quoted.replace("@", "***")
    for line in given["go"]:
        yield re.sub("[«»]", "", line), re.sub("«[^»]*(?:»|$)", "***", line)
    yield from ((line, line) for line in given["stay"])


@pytest.mark.parametrize("kind", _CORPUS)
def test_in_each_line_of_the_corpus_secrets_are_replaced_wherever_they_are_and_similar_texts_are_kept(
    kind: str,
) -> None:
    """In each line of the corpus secrets are replaced, wherever they are, and similar texts are kept."""
    cases = list(_lines(kind))
    assert len(cases) >= 100
    made = interceptor("redact", kinds=[kind])
    after = made.intercept(EventBatch.of_bodies([line.encode() for line, _ in cases])).bodies()
    wrong = [
        (line, text.decode(), wanted)
        for (line, wanted), text in zip(cases, after, strict=True)
        if text.decode() != wanted
    ]
    assert not wrong, "\n".join(map(str, wrong[:20]))


_PIECES = ["a", "1", "1 ", "4111 ", "@", "a@", "a@b.", "a'", "a%", "1.", "-", "--a", "://", "://a:", "<", "<a"]
_PIECES += ["password", "password=", "password ", "'", '\\"', '\\\\"', "Bearer ", "bearer a", "a:", "<token "]


@pytest.mark.parametrize("kind", _CORPUS)
@pytest.mark.parametrize("piece", _PIECES)
def test_a_line_that_repeats_the_beginning_of_a_match_takes_linear_time(kind: str, piece: str) -> None:
    """A line that repeats the beginning of a match takes linear time."""
    made = interceptor("redact", kinds=[kind])
    short, long = (min(_seconds(made, piece * (size // len(piece))) for _ in range(3)) for size in (5_000, 40_000))
    assert long < 8 * 4 * short + 0.05


def _seconds(made: Any, line: str) -> float:
    begun = time.thread_time()
    made.intercept(EventBatch.of_bodies([line.encode()]))
    return time.thread_time() - begun


def test_of_a_pattern_with_groups_only_the_groups_go():
    """A user's pattern is replaced as a whole, or, if it has groups, only the groups."""
    made = interceptor("redact", patterns=[r"user=(\w+) (\w+)?", "secret"], replacement="#")
    assert made.intercept(lines("user=joe x secret", "user=ann ")).bodies() == [b"user=# # #", b"user=# "]


def test_only_named_headers_are_searched():
    """Only named headers are searched, shared ones and others."""
    batch = EventBatch.of_events(
        [({"a": "x@y.zz", "b": "x@y.zz"}, b"1"), ({"a": "x@y.zz", "b": "no"}, b"2"), ({}, b"3")]
    )
    after = headers(interceptor("redact", kinds=["email"], headers=["a", "none"]).intercept(batch))
    assert after == [{"a": "***", "b": "x@y.zz"}, {"a": "***", "b": "no"}, {}]
    assert headers(interceptor("redact", kinds=["email"], headers=["a"]).intercept(lines("1", a="x@y.zz"))) == [
        {"a": "***"}
    ]


def test_a_batch_without_anything_of_it_is_the_same():
    """A batch without a match is passed on as it is."""
    batch = lines("a")
    assert interceptor("redact", kinds=["email"]).intercept(batch) is batch


def test_a_missing_or_unknown_kind_without_a_pattern_is_a_configuration_error():
    """A missing or unknown kind, without a pattern, is a configuration error."""
    with pytest.raises(AgentConfigError, match="must name a kind, unless patterns has a pattern"):
        interceptor("redact")
    with pytest.raises(AgentConfigError, match="must be some of email"):
        interceptor("redact", kinds=["mail"])
