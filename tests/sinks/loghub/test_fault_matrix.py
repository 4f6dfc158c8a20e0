"""Every line of the fault matrix, against a real server on a socket."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from producer import HttpConfig, Producer, ProducerConfig, ProjectConfig, Result, SendFuture
from producer.server import LogHubServer, faults

from .fault_matrix import AT_ONCE, BACKOFF, CASES, FAIL, HOLD, REFRESH, SPLIT, Case, refused_port

BASE = 0.04
RETRIES = 2
LOGS = 8
DOCUMENT = Path(__file__).with_name("fault_matrix.md")


@pytest.fixture(scope="module")
def module_server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture
def server(module_server: LogHubServer) -> LogHubServer:
    module_server.faults.clear()
    module_server.clear_requests()
    return module_server


_numbers = itertools.count()


def fresh_logstore() -> str:
    """Return a logstore that no other test writes to."""
    return f"matrix-{next(_numbers)}"


def producer_for(
    server: LogHubServer, case: Case | None = None, *, retries: int = RETRIES, **options: object
) -> Producer:
    """Return a producer with short backoffs and the timeouts of the case."""
    patience = 600 if case is not None and case.code == "SocketTimeout" else 20_000
    project = ProjectConfig(
        "p", endpoint=server.endpoint, access_key_id=server.access_key_id, access_key_secret=server.access_key_secret
    )
    config = {
        "linger_ms": 100,
        "base_retry_backoff_ms": int(BASE * 1000),
        "max_retry_backoff_ms": 1000,
        "retries": retries,
        "http": HttpConfig(connect_timeout_ms=1000, read_timeout_ms=patience),
    } | options
    return Producer(project, config=ProducerConfig(**config))  # type: ignore[arg-type]


def send_some(producer: Producer, logstore: str, count: int = LOGS) -> tuple[dict[str, SendFuture], list[Result]]:
    """Send numbered logs of one stream; return the futures by number, and the list of the callbacks' results."""
    told: list[Result] = []
    stream = producer.stream("p", logstore, topic="t", source="s")
    futures = {str(n): stream.send({"n": str(n)}, callback=told.append) for n in range(count)}
    producer.flush(timeout=30)
    return futures, told


def requests_made(server: LogHubServer, logstore: str, expected: int) -> int:
    """Return the number of requests for the logstore; the server notes one when it is done, maybe after the client's
    timeout.
    """
    end = time.monotonic() + 10
    while (made := sum(request.logstore == logstore for request in server.requests)) < expected:
        if time.monotonic() > end:
            break
        time.sleep(0.005)
    return made


def check_conservation(server: LogHubServer, logstore: str, futures: dict[str, SendFuture], told: list[Result]) -> None:
    """Check that sends = successes + failures = callbacks, and that every success is on the server."""
    assert all(future.done() for future in futures.values())
    assert len(told) == len(futures)
    stored = Counter(dict(log.contents)["n"] for log in server.logs("p", logstore))
    delivered = {n for n, future in futures.items() if future.exception() is None}
    assert delivered <= stored.keys()
    possible = {
        n for n, future in futures.items() if (error := future.exception()) and error.result.may_have_been_stored
    }
    assert stored.keys() <= delivered | possible


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fault_met_once_ends_as_the_matrix_says(case: Case, server: LogHubServer) -> None:
    """After one failed request the retry delivers, unless the matrix says that no retry can help."""
    logstore = fresh_logstore()
    installed = case.install(server, 1)
    with producer_for(server, case) as producer:
        futures, told = send_some(producer, logstore)
    check_conservation(server, logstore, futures, told)
    result = told[0]
    assert result.attempts[0].error_code == case.code
    assert case.may_have_been_stored in (None, result.attempts[0].may_have_been_stored)
    assert installed.fired == 1  # type: ignore[attr-defined]
    assert result.successful == (case.reaction != FAIL)
    expected_requests = {FAIL: 1, SPLIT: 3}.get(case.reaction, 2)
    assert requests_made(server, logstore, expected_requests) == expected_requests
    copies = Counter(dict(log.contents)["n"] for log in server.logs("p", logstore))
    if result.successful:
        assert set(copies.values()) == {2 if case.stored else 1}


@pytest.mark.parametrize("case", [case for case in CASES if case.reaction != SPLIT], ids=lambda case: case.name)
def test_a_fault_without_end_makes_a_bounded_number_of_requests_and_fails(case: Case, server: LogHubServer) -> None:
    """The record fails after as many requests as the matrix says, at growing intervals."""
    logstore = fresh_logstore()
    case.install(server, None)
    retries = 5 if case.reaction == REFRESH else RETRIES
    with producer_for(server, case, retries=retries) as producer:
        futures, told = send_some(producer, logstore, 2)
    check_conservation(server, logstore, futures, told)
    result = told[0]
    assert not result.successful
    requests = {FAIL: 1, AT_ONCE: 2, REFRESH: 4}.get(case.reaction, RETRIES + 1)
    assert requests_made(server, logstore, requests) == requests == result.attempt_count
    assert case.may_have_been_stored in (None, result.may_have_been_stored)
    check_intervals(case, result)


def check_intervals(case: Case, result: Result) -> None:
    """Check that retry n waits from ``base * 2**(n-1)`` to twice that, with a tolerance for the machine."""
    if case.reaction not in {BACKOFF, HOLD, REFRESH}:
        return
    ends = [attempt.timestamp_ms + attempt.duration_ms for attempt in result.attempts]
    starts = [attempt.timestamp_ms for attempt in result.attempts]
    for n, (end, start) in enumerate(zip(ends, starts[1:], strict=False), 1):
        pause = (start - end) / 1000
        growth = 4 if case.reaction == HOLD else 1  # a throttled logstore waits longer after each refusal in a row
        assert BASE * 2 ** (n - 1) - 0.005 <= pause <= BASE * 2**n * growth + 1.0


@pytest.mark.parametrize(("logs_allowed", "requests"), [(4, 3), (2, 7), (1, 15)])
def test_every_record_arrives_once_however_small_the_limit_of_the_server_is_down_to_one_log_a_request(
    logs_allowed: int, requests: int, server: LogHubServer
) -> None:
    """Every record arrives once, however small the limit of the server is, down to one log a request."""
    logstore = fresh_logstore()
    limit = 48 + 21 * logs_allowed  # a tail, and records of 21 bytes
    refusal = faults.Refuse(status=413, code="PostBodyTooLarge")
    server.faults.add(lambda request: refusal if (request.raw_size or 0) > limit else None)
    with producer_for(server) as producer:
        futures, told = send_some(producer, logstore)
    check_conservation(server, logstore, futures, told)
    assert all(result.successful for result in told)
    assert sorted(dict(log.contents)["n"] for log in server.logs("p", logstore)) == sorted(futures)
    assert requests_made(server, logstore, requests) == requests


def test_a_single_log_too_large_for_the_server_fails(server: LogHubServer) -> None:
    """A batch of one log fails with the server's code."""
    server.faults.add(faults.answer(413, "PostBodyTooLarge"))
    with producer_for(server) as producer:
        _, told = send_some(producer, logstore := fresh_logstore(), 2)
    assert [result.error_code for result in told] == ["PostBodyTooLarge"] * 2
    assert requests_made(server, logstore, 3) == 3


def test_connection_refused_is_retried_and_cannot_have_stored_anything(server: LogHubServer) -> None:
    """Every attempt is one refused connection, and the result says that nothing was stored."""
    with refused_port() as port:
        project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
        config = ProducerConfig(linger_ms=100, base_retry_backoff_ms=20, retries=RETRIES)
        with Producer(project, config=config) as producer:
            futures, told = send_some(producer, "refused")
    check_conservation(server, "refused", futures, told)
    assert {result.error_code for result in told} == {"RequestError"}
    assert "refused" in told[0].error_message
    assert told[0].attempt_count == RETRIES + 1
    assert not told[0].may_have_been_stored


def test_a_name_that_does_not_resolve_is_retried_and_named(server: LogHubServer) -> None:
    """The message names the host, and nothing can have been stored."""
    project = ProjectConfig("p", endpoint="http://nowhere.invalid", access_key_id="a", access_key_secret="s")
    config = ProducerConfig(linger_ms=100, base_retry_backoff_ms=20, retries=1, http=HttpConfig(proxies={}))
    with Producer(project, config=config) as producer:
        futures, told = send_some(producer, "unresolved", 2)
    check_conservation(server, "unresolved", futures, told)
    assert told[0].attempt_count == 2
    assert "p.nowhere.invalid" in told[0].error_message
    assert not told[0].may_have_been_stored


def test_a_late_response_within_the_timeout_is_a_success_at_the_first_attempt(server: LogHubServer) -> None:
    """A late response within the timeout is a success at the first attempt."""
    server.faults.add(faults.delay(0.3), times=1)
    with producer_for(server) as producer:
        futures, told = send_some(producer, logstore := fresh_logstore())
    check_conservation(server, logstore, futures, told)
    assert told[0].attempt_count == 1
    assert told[0].attempts[0].duration_ms >= 300


def test_a_server_that_restarts_gets_everything() -> None:
    """Records sent while the server is away arrive when it is back."""
    with LogHubServer() as server, producer_for(server, retries=10) as producer:
        first, told_first = send_some(producer, "restart", 3)
        server.stop()
        told: list[Result] = []
        stream = producer.stream("p", "restart")
        late = {f"late{n}": stream.send({"n": f"late{n}"}, callback=told.append) for n in range(3)}
        failing = first_failure(producer)
        server.start()
        producer.flush(timeout=30)
        assert failing
        check_conservation(server, "restart", first | late, told_first + told)
        assert all(result.successful for result in told)
        assert told[0].attempt_count > 1


def first_failure(producer: Producer) -> bool:
    """Wait until an attempt has failed; return False after 10 s."""
    end = time.monotonic() + 10
    while producer.stats().retried == 0:
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def matrix() -> str:
    """Return the table of ``fault_matrix.md``: a row for each reaction, with its faults and their ``error_code``."""
    rows: dict[tuple[str, str], list[str]] = {}
    for case in CASES:
        stored = {None: "if all of the request had left", True: "yes", False: "no"}[case.may_have_been_stored]
        shown = case.name.replace(case.code, f"`{case.code}`")
        name = shown if case.code in case.name else f"{shown} (`{case.code}`)"
        rows.setdefault((case.reaction, stored), []).append(name)
    return "\n".join(f"| {reaction} | {stored} | {', '.join(names)} |" for (reaction, stored), names in rows.items())


def test_the_documentation_shows_the_matrix() -> None:
    """``fault_matrix.md`` has every case, with its code, reaction, and whether the batch may have been stored."""
    assert matrix() in DOCUMENT.read_text()
