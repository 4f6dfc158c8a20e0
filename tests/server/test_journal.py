import os
from collections.abc import Iterator

import pytest

from producer.server import LogHubServer, RequestRecord
from producer.server.journal import Journal

from .client import Client, log_group

KIB = 1024


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    """Yield a server whose journal holds 100 KiB."""
    with LogHubServer(keep_request_bytes=100 * KIB) as server:
        yield server


def record(number: int, header: str = "") -> RequestRecord:
    texts = dict.fromkeys(["operation", "method", "path", "project", "logstore", "request_id"], "")
    numbers = dict.fromkeys(["when", "finished", "raw_size", "body_size", "logs"], 0)
    headers = {"cookie": header}
    return RequestRecord(number=number, headers=headers, query={}, status=200, error_code=None, **texts, **numbers)


def kept(journal: Journal) -> list[int]:
    return [record.number for record in journal.records()]


def test_the_journal_keeps_the_last_requests_in_bounded_memory(server: LogHubServer, client: Client) -> None:
    """Of requests with heads of 15 KiB the journal keeps the last ones in its bound, and counts the dropped ones."""
    for _ in range(20):
        assert client.put(log_group("x"), headers={"Cookie": os.urandom(7_500).hex()}).status_code == 200
    assert len(server.requests) == 5
    assert server.requests[-1].number == 20
    assert server.requests_dropped == 15
    server.clear_requests()
    assert (server.requests, server.requests_dropped) == ([], 0)


def test_the_number_of_records_is_bounded() -> None:
    """The number of records is bounded, however small they are."""
    journal = Journal(3, 1 << 40)
    for number in range(10):
        journal.add(record(number))
    assert (kept(journal), journal.dropped) == ([7, 8, 9], 7)


def test_a_dropped_record_frees_its_bytes_one_larger_than_the_bound_leaves_the_journal_empty() -> None:
    """A dropped record frees its bytes; one larger than the bound leaves the journal empty."""
    journal = Journal(1000, 100 * KIB)
    for number in range(50):
        journal.add(record(number, "x" * 20 * KIB))
    assert kept(journal) == [46, 47, 48, 49]
    for number in range(50):
        journal.add(record(number))
    assert kept(journal)[-50:] == list(range(50))
    journal.add(record(50, "x" * 101 * KIB))
    assert kept(journal) == []
    journal.add(record(51))
    assert kept(journal) == [51]


@pytest.mark.parametrize("bound", ["keep_requests", "keep_request_bytes"])
def test_a_negative_bound_is_refused(bound: str) -> None:
    """A negative bound is refused with the rule and the value."""
    with pytest.raises(ValueError, match=rf"{bound}.* -1.*0 or more"):
        LogHubServer(**{bound: -1})  # type: ignore[arg-type]
