"""``Producer.check`` makes one signed request, and reports a fault in a sentence."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from producer import HttpConfig, InvalidArgumentError, Producer, ProducerConfig, ProjectConfig, TargetError
from producer.reading.errors import LogHubReadError
from producer.reading.signed_client import Question, SignedClient
from producer.server import LogHubServer
from producer.server.faults import answer
from producer.testing import RecordingSink
from tests.server.client import Client
from tests.support.answering import answering
from tests.support.waiting import passed


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    with LogHubServer(auto_create=False, region="cn-test") as server, Client(server, project="shop") as client:
        client.post_json("/", b'{"projectName": "shop", "description": ""}')
        client.post_json("/logstores", b'{"logstoreName": "app-log", "ttl": 1, "shardCount": 2}')
        yield server


@pytest.fixture(autouse=True)
def _clean(server: LogHubServer) -> None:
    server.faults.clear()
    server.clear_requests()
    server.clock_offset = 0.0


def producer_for(server: LogHubServer, project: str = "shop", *, v4: str | None = None, **changes: str) -> Producer:
    options = {
        "endpoint": server.endpoint,
        "access_key_id": server.access_key_id,
        "access_key_secret": server.access_key_secret,
    }
    config = ProducerConfig(sign_version="v4", region=v4) if v4 else ProducerConfig()
    return Producer(ProjectConfig(project, **(options | changes)), config=config)  # type: ignore[arg-type]


def wrong(producer: Producer, logstore: str | None = "app-log", project: str = "shop") -> TargetError:
    with producer, pytest.raises(TargetError) as caught:
        producer.check(project, logstore, timeout=5)
    return caught.value


def unread(project: ProjectConfig, config: ProducerConfig) -> str:
    """Return the error message of a reader."""
    names = {"endpoint": "--endpoint"}
    client = SignedClient(project, "shop", names=names, config=config)
    with client, pytest.raises(LogHubReadError) as caught:
        client.json("ListLogstores", Question("/logstores"), str)
    return str(caught.value)


def test_a_valid_logstore_or_project_needs_one_signed_get_so_does_v4_with_the_right_region(
    server: LogHubServer,
) -> None:
    """A valid logstore or project needs one signed GET; so does V4 with the right region."""
    with producer_for(server) as producer:
        assert "shop/app-log" in producer.check("shop", "app-log")
        assert "answers, and accepts the access key" in producer.check("shop")
    assert [request.method for request in server.requests] == ["GET", "GET"]
    with producer_for(server, v4="cn-test") as producer:
        assert "answers" in producer.check("shop", "app-log")


@pytest.mark.parametrize(
    ("changes", "v4", "logstore", "problem", "words"),
    [
        ({"access_key_id": "nobody"}, None, "app-log", "access_key_id", "does not know this access key id"),
        ({"access_key_secret": "hunter2"}, None, "app-log", "access_key_secret", "secret does not belong to this"),
        (
            {"access_key_secret": "hunter2"},
            "cn-test",
            "app-log",
            "access_key_secret",
            "or the server's region is not 'cn-test'",
        ),
        ({}, "cn-other", "app-log", "access_key_secret", "the server's region is not 'cn-other'"),
        ({}, None, "app-lgo", "logstore", "no such logstore"),
        ({"endpoint": "http://127.0.0.1:9"}, None, "app-log", "endpoint", "Connection refused"),
        ({"endpoint": "http://no-such-host.invalid"}, None, "app-log", "endpoint", "failed to resolve"),
    ],
)
def test_the_error_names_the_option_at_fault_and_the_fault_and_never_the_secret(
    server: LogHubServer, changes: dict[str, str], v4: str | None, logstore: str, problem: str, words: str
) -> None:
    """The error names the option at fault and the fault, and never the secret."""
    error = wrong(producer_for(server, v4=v4, **changes), logstore)
    assert error.problem == problem
    assert words in str(error)
    assert "hunter2" not in str(error)


def test_a_misspelt_logstore_is_reported_as_missing_although_the_server_would_create_it_at_a_write() -> None:
    """A misspelt logstore is reported as missing, although the server would create it at a write; check creates
    nothing.
    """
    with LogHubServer() as server:
        with producer_for(server) as producer:
            for logstore, told in (("app-lgo", "project shop does not exist"), (None, "project shop does not exist")):
                assert f"but {told}: the first write creates it" in producer.check("shop", logstore, timeout=5)
            producer.send("shop", "app-log", {"a": "b"}).result(timeout=60)
            told = "logstore app-lgo does not exist in project shop: the first write creates it"
            assert told in producer.check("shop", "app-lgo", timeout=5)
        with Client(server, project="shop") as client:
            assert client.get("/logstores").json()["logstores"] == ["app-log"]


def test_a_project_that_does_not_exist(server: LogHubServer) -> None:
    """A missing project is distinguished from a missing logstore."""
    error = wrong(producer_for(server, "shpo"), None, "shpo")
    assert (error.problem, "no such project at this endpoint" in str(error)) == ("project", True)


def test_a_region_that_is_not_the_endpoints() -> None:
    """If the endpoint names its region, a different region is reported as a certain fault."""
    from producer.model.errors import UnauthorizedError
    from producer.sinks.loghub.probe import sentence

    project = ProjectConfig(
        "p", endpoint="https://cn-hangzhou-intranet.log.aliyuncs.com", access_key_id="i", access_key_secret="s"
    )
    config = ProducerConfig(sign_version="v4", region="cn-beijing")
    with pytest.raises(TargetError, match="region is 'cn-beijing', but the endpoint is in 'cn-hangzhou'"):
        sentence(UnauthorizedError("SignatureNotMatch", "no"), project, "l", config)


def test_a_clock_that_differs_and_plain_http_behind_https(server: LogHubServer) -> None:
    """Both faults are reported; the first check learns the clock's offset, so the next one passes, also of a reader."""
    server.clock_offset = 50 * 366 * 86_400
    producer = producer_for(server)
    (project,) = producer._sink.project_configs()
    with SignedClient(project, "shop", names={}) as reader:
        reader.json("ListLogstores", Question("/logstores"), str)
    with pytest.raises(TargetError, match="this machine's clock is not the server's"):
        producer.check("shop", "app-log")
    assert "answers" in producer.check("shop", "app-log")
    producer.close()
    error = wrong(producer_for(server, endpoint=server.endpoint.replace("http:", "https:")))
    assert "answers plain HTTP, not TLS: write http://" in str(error)
    assert "the endpoint says https, but the server speaks http: write http:// (" in str(error)
    assert "check the host name" not in str(error)


@pytest.mark.parametrize(
    ("name", "expired", "trusted", "told"),
    [
        ("127.0.0.1", False, False, "its certificate is of an unknown authority: name a file"),
        ("127.0.0.1", True, True, "its certificate has expired, or this machine's clock is wrong"),
        ("elsewhere", False, True, "its certificate is for other hosts: the endpoint must name one of them"),
    ],
    ids=["authority", "expired", "name"],
)
def test_check_and_readers_report_a_rejected_certificate_with_the_remedy_not_as_an_unreachable_host(
    tmp_path: Path, name: str, expired: bool, trusted: bool, told: str
) -> None:
    """Check and readers report a rejected certificate with the remedy, not as an unreachable host."""
    authority, bundle = trustme.CA(), tmp_path / "ca.pem"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(str(bundle))
    until = datetime.now(UTC) + timedelta(days=-1 if expired else 1)
    config = ProducerConfig(http=HttpConfig(ca_bundle=str(bundle)), retries=0)
    with answering() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name, not_after=until).configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes are expected
        endpoint = server.endpoint.replace("http:", "https:")
        project = ProjectConfig("shop", endpoint=endpoint, access_key_id="id", access_key_secret="s")
        error = wrong(Producer(project, config=config))
        assert (error.problem, "check the host name" in str(error)) == ("http", False)
        assert "the server's certificate is not trusted (" in str(error)
        assert told in str(error)
        reading = unread(project, config)
    assert "TLS: SSLCert" in reading
    assert told in reading
    assert "check --endpoint" not in reading


def test_the_error_blames_the_proxy_not_the_host() -> None:
    """The error blames the proxy, not the host."""
    with answering(403) as proxy:
        for place, words in ((proxy.endpoint, "403 Forbidden"), ("http://127.0.0.1:9", "Connection refused")):
            config = ProducerConfig(http=HttpConfig(proxies={"https": place}))
            project = ProjectConfig("shop", endpoint="https://h.invalid", access_key_id="id", access_key_secret="s")
            error = wrong(Producer(project, config=config))
            assert error.problem == "http"
            assert (
                "the proxy opens no connection: check the proxy's address, and whether it may connect there ("
                in str(error)
            )
            assert words in str(error)


def test_the_error_shows_the_beginning_of_an_unexpected_page_and_the_remedy_the_reader_does_not_retry() -> None:
    """The error shows the beginning of an unexpected page and the remedy; the reader does not retry."""
    with answering(200) as portal:
        project = ProjectConfig("shop", endpoint=portal.endpoint, access_key_id="id", access_key_secret="s")
        error = unread(project, ProducerConfig(retries=0))
    assert "an answer that is not LogHub's: ''" in error
    assert "check --endpoint: a proxy, a portal or another server may have answered" in error


def test_version_4_signs_the_region_as_well_as_the_key(server: LogHubServer) -> None:
    """Version 4 signs the region as well as the key."""
    project = ProjectConfig(
        "shop",
        endpoint=server.endpoint,
        access_key_id=server.access_key_id,
        access_key_secret=server.access_key_secret,
    )
    config = ProducerConfig(sign_version="v4", region="cn-other", retries=0)
    assert "and whether 'cn-other' is the server's region" in unread(project, config)


def test_a_permission_to_write_is_enough_and_a_quota_passes(server: LogHubServer) -> None:
    """A permission to write is enough, and a quota passes; the sentence says so."""
    with producer_for(server) as producer:
        server.faults.add(answer(403, "Unauthorized", "no permission to list shards"))
        assert "this key may not ask" in producer.check("shop", "app-log")
        server.faults.add(answer(403, "ReadQuotaExceed", "slow"))
        assert "whether it may write" in producer.check("shop", "app-log")


def test_a_failing_server_is_server_a_page_of_another_server_is_a_fault_of_the_endpoint(server: LogHubServer) -> None:
    """A failing server is `server`; a page of another server is a fault of the endpoint."""
    with answering(503, "ServerBusy", "later") as busy:
        assert wrong(producer_for(server, endpoint=busy.endpoint)).problem == "server"
        busy.answer = (200, "", "")
        busy.headers = {"x-log-requestid": ""}
        error = wrong(producer_for(server, endpoint=busy.endpoint.replace("http://", "https://")))
        assert error.problem == "endpoint"


def test_the_finding_of_each_endpoint_is_reported(server: LogHubServer) -> None:
    """Of several endpoints, each dead one is reported with its error and the remedy, and those that answer."""
    dead = ("http://127.0.0.1:9", "http://no-such-host.invalid")
    key = {name: value for name, value in server.connection.items() if name != "endpoint"}
    error = wrong(Producer(ProjectConfig("shop", endpoints=(dead[0], server.endpoint, dead[1]), **key)))
    first, second, third = str(error).split("\n")
    assert error.problem == "endpoint"
    assert first.startswith(f"shop/app-log at {dead[0]}: cannot be reached: check the host name")
    assert "Connection refused" in first
    assert f"at {server.endpoint} (" in second
    assert second.endswith("answers, and accepts the access key")
    assert third.startswith(f"shop/app-log at {dead[1]}: cannot be reached: check the host name")
    assert "failed to resolve" in third


def test_an_answer_that_never_comes_ends_the_question_in_time() -> None:
    """The timeout holds for a sink that hangs, for example in name resolution."""
    ended = threading.Event()

    class Hanging(RecordingSink):
        def probe(self, project: str, logstore: str | None, timeout: float) -> str:
            passed(ended)
            return "late"

    with Producer(sink=Hanging()) as producer:
        with pytest.raises(TargetError, match=r"no answer within 0\.05 s"):
            producer.check("p", "l", timeout=0.05)
        ended.set()


def test_check_refuses_unknown_projects_and_invalid_names_as_send_does(server: LogHubServer) -> None:
    """check refuses unknown projects and invalid names, as ``send`` does."""
    with producer_for(server) as producer:
        with pytest.raises(InvalidArgumentError, match="did you mean 'shop'"):
            producer.check("shpo")
        with pytest.raises(InvalidArgumentError, match="lower-case"):
            producer.check("shop", "App Log")
    assert not server.requests
    with Producer(sink=RecordingSink()) as producer:
        assert "no remote endpoint to check" in producer.check("any", "l")


def test_acheck_asks_without_blocking_the_loop(server: LogHubServer) -> None:
    """acheck returns the same answer and raises the same error without blocking the loop."""

    async def main() -> None:
        async def tick() -> int:
            await asyncio.sleep(0)
            return 1

        with producer_for(server) as producer:
            said, ticked = await asyncio.gather(producer.acheck("shop", "app-log"), tick())
            assert "answers" in said
            assert ticked
            with pytest.raises(TargetError):
                await producer.acheck("shop", "nonesuch")

    asyncio.run(main())
