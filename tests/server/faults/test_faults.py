import http.client
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import requests

from producer.server import LogHubServer, faults
from producer.server.faults import Delay

from ...support.waiting import Call, eventually
from ..client import LOGSTORE, PROJECT, Client, error_of, log_group


def assert_recovers(server: LogHubServer, client: Client) -> None:
    """Assert that the same client works without the fault."""
    server.faults.clear()
    before = server.count(PROJECT, LOGSTORE)
    assert client.put(log_group("after")).status_code == 200
    assert before + 1 == server.count(PROJECT, LOGSTORE)


def test_the_first_n_requests_get_the_faults_status_code_message_and_headers_and_store_nothing(
    server: LogHubServer, client: Client
) -> None:
    """The first n requests get the fault's status, code, message and headers and store nothing; the next one works."""
    fault = faults.answer(503, "ServerBusy", "come back later", headers={"Retry-After": "7"})
    installed = server.faults.add(fault, times=2)
    for _ in range(2):
        answer = client.put(log_group("x"))
        assert error_of(answer) == (503, "ServerBusy")
        assert (answer.json()["errorMessage"], answer.headers["Retry-After"]) == ("come back later", "7")
    assert client.put(log_group("x")).status_code == 200
    assert (installed.fired, server.count(PROJECT, LOGSTORE)) == (2, 1)
    assert [record.status for record in server.requests] == [503, 503, 200]
    assert [record.error_code for record in server.requests] == ["ServerBusy", "ServerBusy", None]


def test_a_fault_can_answer_a_gateways_html_instead_of_json_with_any_status(
    server: LogHubServer, client: Client
) -> None:
    """A fault can answer a gateway's HTML instead of JSON, with any status."""
    server.faults.add(faults.answer(502, "BadGateway", body=b"<html>bad gateway</html>"))
    answer = client.put(log_group("x"))
    assert (answer.status_code, answer.content) == (502, b"<html>bad gateway</html>")
    server.faults.clear()
    server.faults.add(faults.answer(299, "", body=b""))
    assert ((odd := client.put(log_group("x"))).status_code, odd.content) == (299, b"")
    assert_recovers(server, client)


def test_a_delay_comes_before_the_write(server: LogHubServer, client: Client) -> None:
    """A delayed request stores nothing until the delay is over, and delays no other."""
    long = server.faults.add(faults.delay(60), logstore=LOGSTORE)
    late = Call(lambda: client.put(log_group("late")))
    eventually(lambda: long.fired)
    with Client(server) as other:
        assert other.put(log_group("x"), logstore="other").status_code == 200
    assert (server.count(PROJECT, LOGSTORE), server.count(PROJECT, "other")) == (0, 1)
    server.stop()
    with pytest.raises(requests.ConnectionError):
        late.result()
    server.faults.clear()
    server.faults.add(faults.delay(0.4), logstore=LOGSTORE)
    server.start()
    started = time.monotonic()
    assert client.put(log_group("later")).status_code == 200
    assert time.monotonic() - started >= 0.4
    assert server.count(PROJECT, LOGSTORE) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_with_a_delay_before_or_after_storing_a_client_times_out_and_its_data_is_stored_nevertheless(
    server: LogHubServer, client: Client, stored: bool
) -> None:
    """With a delay before or after storing, a client times out, and its data is stored nevertheless."""
    server.faults.add(faults.delay(0.3, stored=stored))
    with pytest.raises(requests.Timeout):
        client.put(log_group("x"), timeout=0.1)
    assert int(stored) == server.count(PROJECT, LOGSTORE)
    deadline = time.monotonic() + 5
    while server.count(PROJECT, LOGSTORE) == 0:
        assert time.monotonic() < deadline
    assert_recovers(server, client)


CUTS: list[tuple[faults.Fault, int]] = [
    (faults.drop_answer(), 1),
    (faults.drop_answer(reset=False), 1),
    (faults.cut("before_body"), 0),
    (faults.cut("before_body", reset=False), 0),
    (faults.cut("in_body"), 0),
    (faults.cut("after_body"), 0),
    (faults.half_answer(0.05), 1),
    (faults.half_answer(0.0), 1),
    (faults.raw_answer(), 0),
    (faults.raw_answer(b""), 0),
    (faults.raw_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", stored=True), 1),
]


@pytest.mark.parametrize(("fault", "stored"), CUTS)
def test_each_cut_is_a_connection_error_for_the_client_and_stores_its_data_only_at_the_stage_stored(
    server: LogHubServer, client: Client, fault: faults.Fault, stored: int
) -> None:
    """Each cut is a connection error for the client, and stores its data only at the stage "stored"."""
    server.faults.add(fault, times=1)
    with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        client.put(log_group("x" * 200_000), compression="none")
    assert stored == server.count(PROJECT, LOGSTORE)
    (record,) = server.requests
    assert (None, stored) == (record.status, record.logs)
    assert_recovers(server, client)


@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_is_a_reset_or_an_end(server: LogHubServer, client: Client, reset: bool) -> None:
    """With reset the client's socket gets ECONNRESET, without it the end of the stream."""
    server.faults.add(faults.drop_answer(reset=reset))
    expected = "Connection reset" if reset else "without response"
    with pytest.raises(requests.ConnectionError, match=expected):
        client.put(log_group("x"))


def test_half_an_answer_breaks_off_within_its_body(server: LogHubServer, client: Client) -> None:
    """A read can break off in its body, after a status line of success."""
    client.put(log_group("x" * 10_000))
    server.faults.add(faults.half_answer(0.9), operation="PullLogs")
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    path = f"/logstores/{LOGSTORE}/shards/0"
    params = {"type": "log", "cursor": "MA=="}
    connection.request("GET", f"{path}?type=log&cursor=MA==", headers=client.sign("GET", path, params, {}, b""))
    answer = connection.getresponse()
    assert answer.status == 200
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    connection.close()


def test_an_answer_can_drip(server: LogHubServer, client: Client) -> None:
    """A dripping answer arrives byte by byte, whole and valid."""
    server.faults.add(faults.drip_answer(0.001))
    started = time.monotonic()
    assert client.put(log_group("x")).status_code == 200
    assert time.monotonic() - started > 0.1
    assert [record.status for record in server.requests] == [200]


def test_the_clock_can_be_wrong_for_some_requests(server: LogHubServer, client: Client) -> None:
    """A clock offset changes Date and the check of the time, for the fault's requests only."""
    server.faults.add(faults.clock_offset(7200), times=1)
    refused = client.put(log_group("x"))
    assert error_of(refused) == (400, "RequestTimeExpired")
    date = datetime.strptime(refused.headers["Date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
    assert 7190 < date.timestamp() - time.time() < 7210
    assert client.put(log_group("x")).status_code == 200


def test_faults_combine(server: LogHubServer, client: Client) -> None:
    """Delays of several faults add up, and the first of their other actions is used."""
    server.faults.add(faults.delay(0.1))
    server.faults.add(faults.answer(500, "InternalServerError"))
    server.faults.add(faults.answer(403, "WriteQuotaExceed"))
    server.faults.add(faults.delay(0.1))
    started = time.monotonic()
    assert error_of(client.put(log_group("x"))) == (500, "InternalServerError")
    assert time.monotonic() - started >= 0.2


@pytest.mark.parametrize(
    "wanted",
    [{"project": PROJECT}, {"logstore": "bad"}, {"operation": "PutLogs"}, {"project": PROJECT, "logstore": "bad"}],
)
def test_a_fault_for_a_project_a_logstore_or_an_operation_affects_no_other(
    server: LogHubServer, client: Client, wanted: dict[str, str]
) -> None:
    """A fault for a project, a logstore or an operation affects no other."""
    server.faults.add(faults.answer(403, "ShardWriteQuotaExceed"), **wanted)
    assert error_of(client.put(log_group("x"), logstore="bad")) == (403, "ShardWriteQuotaExceed")
    with Client(server, project="another-project") as other:
        assert other.get("/logstores/good").status_code == 404


def test_chance_with_a_seed_repeats(server: LogHubServer, client: Client) -> None:
    """A random fault affects about its share of the requests, and the same ones for the same seed."""
    runs = []
    for _ in range(2):
        server.faults.clear()
        server.faults.add(faults.answer(500, "InternalServerError"), probability=0.5, seed=7)
        runs.append([client.put(log_group("x")).status_code for _ in range(30)])
    assert runs[0] == runs[1]
    assert 5 < runs[0].count(500) < 25


def test_a_fault_is_a_plain_function(server: LogHubServer, client: Client) -> None:
    """A test's own function can be a fault."""
    seen: list[tuple[str, str, int]] = []

    def fault(request: faults.ApiRequest) -> faults.Action | None:
        seen.append((request.operation, request.logstore, request.number))
        return Delay(0.05) if request.number == 1 else None

    installed = server.faults.add(fault)
    client.put(log_group("x"))
    client.get("/logstores")
    assert seen == [("PutLogs", LOGSTORE, 1), ("ListLogstores", "", 2)]
    assert installed.fired == 1
    server.faults.remove(installed)
    client.get("/logstores")
    assert len(seen) == 2


def test_a_fault_that_raises_is_an_internal_error_with_its_reason(
    server: LogHubServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that raises is answered as an internal error; the answer and the log name the exception."""

    def broken(_request: faults.ApiRequest) -> None:
        raise KeyError("oops")

    server.faults.add(broken, times=1)
    answer = client.put(log_group("x"))
    assert error_of(answer) == (500, "InternalServerError")
    assert "oops" in answer.text
    assert "oops" in caplog.text
    assert_recovers(server, client)


@pytest.mark.parametrize(
    "wrong", [lambda: faults.Cut("sometimes"), lambda: faults.Faults().add(faults.delay(1), probability=2)]
)
def test_a_wrong_fault_is_refused_when_it_is_made(wrong: Callable[[], object]) -> None:
    """An unknown stage and an impossible probability raise ValueError at once."""
    with pytest.raises(ValueError, match=r"sometimes|probability"):
        wrong()
