"""The LogHub sink over real sockets: hosts, signatures, proxies, TLS, clocks, credentials."""

import shutil
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certifi
import pytest
import trustme

from producer import (
    ConfigError,
    Credentials,
    HttpConfig,
    InvalidArgumentError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    Result,
)
from producer.channels import FileChannel
from producer.model.records import StreamKey
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer, faults
from producer.sinks.http.transport import target_of
from producer.sinks.loghub.sink import LogHubSink
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def server() -> Iterator[LogHubServer]:
    with LogHubServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _clean(server: LogHubServer) -> None:
    server.faults.clear()
    server.clear_requests()
    server.clock_offset = 0.0


def project_for(server: LogHubServer, name: str = "p", **changes: object) -> ProjectConfig:
    options = {
        "endpoint": server.endpoint,
        "access_key_id": server.access_key_id,
        "access_key_secret": server.access_key_secret,
    }
    return ProjectConfig(name, **(options | changes))  # type: ignore[arg-type]


def options(**changes: object) -> ProducerConfig:
    defaults = {"linger_ms": 100, "base_retry_backoff_ms": 10, "retries": 3}
    return ProducerConfig(**(defaults | changes))  # type: ignore[arg-type]


def send_one(producer: Producer, project: str = "p", logstore: str = "sink", **where: str) -> Result:
    """Send one log, and return its result, failed or not."""
    future = producer.send(project, logstore, {"k": "v"}, **where)  # type: ignore[arg-type]
    error = future.exception(timeout=20)
    return future.result() if error is None else error.result


@pytest.mark.parametrize("compression", ["lz4", "zstd", "deflate", "none"])
@pytest.mark.parametrize("version", ["v1", "v4"])
def test_every_compression_and_signature_is_accepted(server: LogHubServer, compression: str, version: str) -> None:
    """The server verifies the signature, decompresses and decodes with code of its own, and has the same log."""
    store = f"c-{compression}-{version}"
    config = options(compression=compression, sign_version=version, region="cn-test", log_tags={"env": "test"})
    with Producer(project_for(server), config=config) as producer:
        assert producer.send("p", store, {"k": "值", "n": 7}, topic="主题", source="here").result(60).successful
    (log,) = server.logs("p", store)
    assert (log.contents, log.topic, log.source) == ([("k", "值"), ("n", "7")], "主题", "here")
    assert log.tags["env"] == "test"
    assert log.tags["__pack_id__"].endswith("-0")


def test_a_shard_hash_routes_and_equal_hashes_share_a_shard(server: LogHubServer) -> None:
    """The request goes to /shards/route with the adjusted key, and equal hashes use one shard."""
    with Producer(project_for(server), config=options()) as producer:
        for n in range(6):
            producer.send("p", "routed", {"n": n}, shard_hash=f"user-{n % 2}")
        producer.flush(20)
    shards: dict[str, set[int]] = {}
    for log in server.logs("p", "routed"):
        shards.setdefault(str(int(dict(log.contents)["n"]) % 2), set()).add(log.shard)
    assert all(len(found) == 1 for found in shards.values())
    assert {request.path for request in server.requests} == {"/logstores/routed/shards/route"}
    assert all(request.query["key"].endswith("0" * 30) for request in server.requests)


def test_the_option_processor_becomes_a_query_parameter_which_is_signed_like_the_others(server: LogHubServer) -> None:
    """The option ``processor`` becomes a query parameter, which is signed like the others."""
    with Producer(project_for(server), config=options(processor="parse-nginx")) as producer:
        assert send_one(producer).successful
    assert server.requests[-1].query["processor"] == "parse-nginx"


@pytest.mark.parametrize(
    ("endpoint", "base", "host"),
    [
        ("https://cn-x.log.aliyuncs.com", "https://p.cn-x.log.aliyuncs.com", "p.cn-x.log.aliyuncs.com"),
        ("http://10.1.2.3:8080", "http://10.1.2.3:8080", "p.10.1.2.3:8080"),
        ("http://localhost:9170", "http://localhost:9170", "p.localhost:9170"),
        ("http://[::1]:9170", "http://[::1]:9170", "p.[::1]:9170"),
    ],
)
def test_an_endpoint_by_address_keeps_the_project_in_the_host_header(endpoint: str, base: str, host: str) -> None:
    """The project precedes a host name; for an address or localhost only the Host header has it."""
    target = target_of("p", endpoint)
    assert (target.base_url, target.host) == (base, host)


def test_the_destination_is_a_project_at_an_endpoint() -> None:
    """Streams of one project share a destination; another project or endpoint is another one."""
    sink = LogHubSink(ProducerConfig(), SystemClock(), "test")
    key = StreamKey("p", "a", "", "")
    unknown = sink.destination(key)
    sink.put_project(ProjectConfig("p", endpoint="http://here", access_key_id="a", access_key_secret="s"))
    sink.put_project(ProjectConfig("q", endpoint="http://here", access_key_id="a", access_key_secret="s"))
    first = sink.destination(key)
    assert first == sink.destination(key._replace(logstore="b", topic="t"))
    sink.put_project(ProjectConfig("p", endpoint="http://there", access_key_id="a", access_key_secret="s"))
    assert len({unknown, first, sink.destination(key), sink.destination(key._replace(project="q"))}) == 4
    sink.close()


def test_localhost_works_as_an_endpoint(server: LogHubServer) -> None:
    """localhost is treated as an address."""
    with Producer(project_for(server, endpoint=f"http://localhost:{server.port}"), config=options()) as producer:
        assert send_one(producer).successful


def test_requests_go_through_a_configured_proxy(server: LogHubServer) -> None:
    """A request through a proxy has the whole URL, and reaches a host that this machine cannot resolve."""
    proxies = HttpConfig(proxies={"http": server.endpoint})
    project = project_for(server, endpoint="http://cn-nowhere.invalid")
    with Producer(project, config=options(http=proxies)) as producer:
        assert send_one(producer, logstore="proxied").successful
    assert server.count("p", "proxied") == 1


def test_proxies_of_the_environment_are_used_unless_turned_off(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None takes HTTP_PROXY from the environment; an empty mapping does not."""
    monkeypatch.setenv("http_proxy", server.endpoint)
    project = project_for(server, endpoint="http://cn-nowhere.invalid")
    with Producer(project, config=options()) as producer:
        assert send_one(producer).successful
    with Producer(project, config=options(http=HttpConfig(proxies={}), retries=0)) as producer:
        assert not send_one(producer).successful


def test_netrc_never_replaces_the_signature(
    server: LogHubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ~/.netrc entry for the host would overwrite the Authorization header; it is not read."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password other\ndefault login me password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with Producer(project_for(server), config=options()) as producer:
        assert send_one(producer).successful


def test_a_redirect_is_not_followed(server: LogHubServer) -> None:
    """One attempt is one request: logs are not sent to a Location."""
    elsewhere = {"Location": f"{server.endpoint}/elsewhere"}
    server.faults.add(faults.answer(307, "Moved", headers=elsewhere, body=b""))
    with Producer(project_for(server), config=options(retries=0)) as producer:
        assert not send_one(producer).successful
    assert len(server.requests) == 1


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 50 * 366 * 86_400.0])
def test_a_wrong_clock_is_corrected_from_the_server_and_remembered(server: LogHubServer, seconds: float) -> None:
    """The first record needs one more request; then the offset is known."""
    server.clock_offset = seconds
    with Producer(project_for(server), config=options()) as producer:
        first, second = send_one(producer), send_one(producer)
    assert first.successful
    assert [attempt.error_code for attempt in first.attempts] == ["RequestTimeExpired", ""]
    assert second.attempt_count == 1


class Rotating:
    """Credentials of which the first are wrong."""

    def __init__(self, server: LogHubServer) -> None:
        self.server = server
        self.threads: list[str] = []

    def get_credentials(self) -> Credentials:
        self.threads.append(threading.current_thread().name)
        secret = "wrong" if len(self.threads) == 1 else self.server.access_key_secret
        return Credentials(access_key_id=self.server.access_key_id, access_key_secret=secret)


def test_a_401_fetches_other_credentials_and_the_record_arrives(server: LogHubServer) -> None:
    """Refused credentials are replaced before the retry, never on the caller's thread."""
    provider = Rotating(server)
    project = ProjectConfig("p", endpoint=server.endpoint, credentials=provider)
    with Producer(project, config=options(name="rotating")) as producer:
        result = send_one(producer)
    assert result.successful
    assert result.attempt_count == 2
    assert set(provider.threads) == {"rotating-credentials-p"}


def test_temporary_credentials_are_sent_with_their_token_the_server_checks_token_and_signature() -> None:
    """Temporary credentials are sent with their token; the server checks token and signature."""
    from producer.server import AccessKey

    keys = {"sts-id": AccessKey(secret="sts-secret", security_token="sts-token")}
    with LogHubServer(access_keys=keys) as server:
        for token, successful in (("sts-token", True), ("another", False)):
            project = ProjectConfig(
                "p",
                endpoint=server.endpoint,
                access_key_id="sts-id",
                access_key_secret="sts-secret",
                security_token=token,
            )
            with Producer(project, config=options(retries=1)) as producer:
                assert send_one(producer).successful == successful


def test_projects_come_and_go_while_the_producer_lives(server: LogHubServer) -> None:
    """An unknown, broken or removed project fails its own records only."""
    with Producer(project_for(server, "good"), config=options(retries=1)) as producer:
        producer.put_project_config(project_for(server, "broken", access_key_secret="wrong"))
        with pytest.raises(InvalidArgumentError, match="unknown"):
            send_one(producer, "unknown")
        assert send_one(producer, "broken").error_code == "SignatureNotMatch"
        producer.put_project_config(project_for(server, "broken"))
        assert send_one(producer, "broken").successful
        producer.remove_project_config("broken")
        with pytest.raises(InvalidArgumentError, match="broken"):
            send_one(producer, "broken")
        assert send_one(producer, "good").successful


class _Accepting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("x-log-requestid", "tls")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Run an https server with a certificate of its own authority; yield its URL and that authority's file."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    bundle = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(bundle))
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), _Accepting)
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    httpd.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes are expected
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{httpd.server_port}", str(bundle)
    httpd.shutdown()
    httpd.server_close()
    thread.join(60)


def test_3_13_tls_certificates_are_verified(tls_server: tuple[str, str]) -> None:
    """An unknown authority is refused before any log is sent; with its bundle the certificate is trusted."""
    url, bundle = tls_server
    project = ProjectConfig("p", endpoint=url, access_key_id="a", access_key_secret="s")
    with Producer(project, config=options(retries=0)) as producer:
        result = send_one(producer)
    assert not result.successful
    assert "certificate" in result.error_message.lower()
    assert not result.may_have_been_stored
    with Producer(project, config=options(http=HttpConfig(ca_bundle=bundle))) as producer:
        assert send_one(producer).successful


def test_with_http_verify_false_the_certificate_is_not_verified(
    tls_server: tuple[str, str], recwarn: pytest.WarningsRecorder
) -> None:
    """With ``http.verify=False`` the certificate is not verified."""
    import warnings

    warnings.simplefilter("ignore")
    project = ProjectConfig("p", endpoint=tls_server[0], access_key_id="a", access_key_secret="s")
    with Producer(project, config=options(http=HttpConfig(verify=False))) as producer:
        assert send_one(producer).successful


def test_a_certificate_bundle_that_no_longer_exists_is_not_retried_as_a_network_error(
    server: LogHubServer, tmp_path: Path
) -> None:
    """A certificate bundle that no longer exists is not retried as a network error."""
    bundle = Path(shutil.copy(certifi.where(), tmp_path / "missing.pem"))
    project = project_for(server, endpoint=f"https://127.0.0.1:{server.port}")
    with Producer(project, config=options(http=HttpConfig(ca_bundle=str(bundle)))) as producer:
        bundle.unlink()
        result = send_one(producer)
    assert result.attempt_count == 1
    assert "missing.pem" in result.error_message
    assert not result.may_have_been_stored


@pytest.mark.parametrize(("text", "told"), [(None, "No such file or directory"), ("no certificate", "CERTIFICATE")])
def test_a_missing_or_invalid_file_is_refused_when_the_producer_is_made_unless_nothing_is_verified(
    tmp_path: Path, text: str | None, told: str
) -> None:
    """A missing or invalid file is refused when the producer is made, unless nothing is verified."""
    bundle = tmp_path / "authorities.pem"
    if text is not None:
        bundle.write_text(text)
    with pytest.raises(ConfigError, match=rf"http.ca_bundle: must be a PEM file of .*{told}.*authorities\.pem"):
        Producer(config=options(http=HttpConfig(ca_bundle=str(bundle))))
    Producer(config=options(http=HttpConfig(ca_bundle=str(bundle), verify=False))).close()
    Producer(config=options(http=HttpConfig(ca_bundle=str(tmp_path)))).close()


@pytest.mark.parametrize("channel", [False, True])
def test_an_endpoint_without_a_scheme_is_https_the_error_and_the_warning_name_http(
    server: LogHubServer, caplog: pytest.LogCaptureFixture, tmp_path: Path, channel: bool
) -> None:
    """An endpoint without a scheme is https; the error and the warning name http:// before the retries end."""
    project = project_for(server, endpoint=f"127.0.0.1:{server.port}")
    where = FileChannel(tmp_path, minimum_free_space=0) if channel else None
    with Producer(project, config=options(retries=1, drain_timeout_ms=0), channel=where) as producer:
        future = producer.send("p", "sink", {"a": "b"})
        if channel:
            eventually(lambda: "write http:// in the endpoint" in caplog.text)
        else:
            error = future.exception(10)
            assert "the server answers plain HTTP, not TLS: write http:// in the endpoint" in str(error)
            assert "write http:// in the endpoint" in caplog.text
