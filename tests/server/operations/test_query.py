from __future__ import annotations

import pytest

from producer.server.errors import ApiError
from producer.server.limits import Limits
from producer.server.operations.query import compile_query

LOG = [
    ("__topic__", "web"),
    ("__source__", "host-1"),
    ("__tag__:pod", "p-9"),
    ("level", "ERROR"),
    ("path", "/api/users?id=7"),
    ("ip", "10.0.0.1"),
    ("说明", "磁盘已满"),
    ("raw", "a\ufffd"),
    ("spaces", "one\u3000two\xa0\xa0drei"),
]


@pytest.mark.parametrize(
    "query",
    [
        *("", "  ", "*", "error", "ERROR", "Err*", "users", "10.0.0.1", '"10.0.0.1"', '"/api/users"', "web", "host-1"),
        *(
            "error users",
            "error and users",
            "nothing or error",
            "not nothing",
            "error not nothing",
            "error AND NOT nothing",
        ),
        *(
            "level: error",
            "level:ERR*",
            "level : ERROR",
            '"level": error',
            "level: *",
            "path: api",
            'path: "users?id=7"',
        ),
        *(
            "__topic__: web",
            "__source__: host-1",
            '"__tag__:pod": *',
            '"__tag__:pod": p-9',
            "磁盘",
            "说明: 已满",
            '"two drei"',
            "spaces: one",
        ),
        *("(error or x) and (users or y)", "not (x or y)", "x or error users", '"and" or error', "not not error"),
    ],
)
def test_a_query_that_fits_matches(query: str) -> None:
    """Words match without regard to case and as whole tokens, keys narrow, and operators combine."""
    assert compile_query(query, Limits())(LOG)


@pytest.mark.parametrize(
    "query",
    [
        *(
            "err",
            "rror",
            "10.0",
            '"users api"',
            "raw: a",
            "nothing",
            "error nothing",
            "not error",
            "level: users",
            "missing: *",
        ),
        *(
            "ip: error",
            "nothing or neither",
            "error and (x or y)",
            "error users not web",
            '"err*"',
            '"="',
            "x or error nothing",
        ),
    ],
)
def test_a_query_that_does_not_fit_matches_nothing(query: str) -> None:
    """A part of a token, another key, or a missing word is no match."""
    assert not compile_query(query, Limits())(LOG)


@pytest.mark.parametrize(
    "query",
    [
        "(",
        ")",
        "a)",
        "(a",
        "or",
        "a or",
        "not",
        "a: ",
        "a:(",
        ":",
        '"open',
        "a | select 1",
        "(" * 60 + "a",
        "not " * 60,
    ],
)
def test_a_query_that_cannot_be_read_is_refused(query: str) -> None:
    """What is not of the grammar is ParameterInvalid, however deep it is nested."""
    with pytest.raises(ApiError, match="ParameterInvalid"):
        compile_query(query, Limits())
