"""GetProjectLogs: SQL over the logstores of a project."""

from collections.abc import Iterator
from typing import Any

import pytest

from producer.server import LogHubServer
from producer.server.operations.project_logs import _times
from producer.server.store.rows import EVERYTHING

from ..client import LOGSTORE, Client, log_group

T = 1_700_000_000


@pytest.fixture
def client() -> Iterator[Client]:
    with LogHubServer() as server, Client(server) as client:
        client.put(log_group("a", "b", "c"))
        yield client


def ask(client: Client, query: str) -> Any:
    return client.get("/logs", query=query)


@pytest.mark.parametrize(
    ("condition", "begin", "end"),
    [
        ("__time__ >= 5 and __time__ < 9", 5, 9),
        ("__time__ > 5 AND __TIME__ <= 9 and a = 'x' group by b", 6, 10),
        ("__time__ between 5 and 9", 5, 10),
        ("a = '__time__ > 5' and __time__ = 7", 7, 8),
    ],
)
def test_a_condition_of_parts_joined_by_and_limits_the_times_that_are_read(
    condition: str, begin: int, end: int
) -> None:
    """A condition of parts joined by AND limits the times that are read."""
    assert (_times(f"select * from l where {condition}").begin, _times(f"select * from l where {condition}").end) == (
        begin,
        end,
    )


@pytest.mark.parametrize(
    "text",
    [
        "select * from l",
        "select * from l where __time__ > 5 or a = 'x'",
        "select * from l where not __time__ > 5",
        "select * from l where (__time__ > 5)",
        "select * from l where a = '__time__ > 5'",
        "select * from l a left join l b on a.x = b.x where a.__time__ > 5",
        "select * from l where x in (select x from l where __time__ > 5)",
        "select * from l where __time__ > 5 union select * from l",
    ],
)
def test_where_its_form_leaves_a_doubt_everything_is_read(text: str) -> None:
    """A condition that is not simple reads all times, since other rows may match."""
    assert _times(text) == EVERYTHING


def test_the_result_has_the_rows_that_the_condition_allows(client: Client) -> None:
    """Reading fewer times does not change the result."""
    found = ask(client, f"select message from {LOGSTORE} where __time__ > {T} and message <> 'c'")
    assert (found.status_code, found.json()) == (200, [{"message": "b"}])


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("* | select 1", 400, "must be one SELECT"),
        ("select 1", 404, "no logstore of project my-project"),
        ("select * from other", 404, "no logstore of project my-project"),
        (f"select * from {LOGSTORE}; drop table log", 400, "must be one SELECT"),
    ],
)
def test_an_unsupported_query_is_refused_in_words(client: Client, query: str, status: int, message: str) -> None:
    """An unsupported query is an error in words instead of an empty answer."""
    found = ask(client, query)
    assert (found.status_code, message in found.json()["errorMessage"]) == (status, True), found.text
