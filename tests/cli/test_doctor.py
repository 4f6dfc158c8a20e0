"""The command ``producer doctor`` against real servers."""

import itertools
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from producer.cli import main
from producer.server import LogHubServer
from producer.server.faults import answer
from tests.support.answering import answering

Run = Callable[..., tuple[int, dict[str, tuple[str, str]]]]
_NUMBERS = itertools.count()
_SECRET = "s3cret-of-a-test"
_STEPS = (
    "version",
    "encoders",
    "environment",
    "credentials",
    "proxy",
    "dns",
    "connection",
    "tls",
    "clock",
    "key",
    "list",
    "write",
    "read",
)


@pytest.fixture(scope="module")
def hub() -> Iterator[LogHubServer]:
    with LogHubServer(access_keys={"id": _SECRET}) as server:
        yield server


@pytest.fixture
def server(hub: LogHubServer, config_file: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogHubServer]:
    """Set an environment that names a server; each test has a logstore of its own."""
    for name in ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    where = {"ENDPOINT": hub.endpoint, "PROJECT": "p", "LOGSTORE": f"store-{next(_NUMBERS)}"}
    for name, value in {**where, "ACCESS_KEY_ID": "id", "ACCESS_KEY_SECRET": _SECRET}.items():
        monkeypatch.setenv(f"LOGHUB_{name}", value)
    yield hub
    hub.faults.clear()
    hub.clock_offset = 0.0


@pytest.fixture
def run(server: LogHubServer, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command, and returns the exit code, and mark and words of each step."""

    def call(*arguments: str, secret: str = _SECRET) -> tuple[int, dict[str, tuple[str, str]]]:
        code = main(["doctor", *arguments])
        printed = capsys.readouterr()
        assert secret not in printed.out + printed.err
        parts = [line.split(None, 2) for line in printed.out.splitlines()]
        assert tuple(name for _, name, _ in parts) == _STEPS
        failed = [name for mark, name, _ in parts if mark == "FAILED"]
        words = "step" if len(failed) == 1 else "steps"
        end = f"producer doctor: {len(failed)} {words} failed: {', '.join(failed)}\n" if failed else ""
        assert printed.err.endswith(end)
        return code, {name: (mark, words) for mark, name, words in parts}

    return call


def _failed(found: dict[str, tuple[str, str]]) -> list[str]:
    return [name for name, (mark, _) in found.items() if mark == "FAILED"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_healthy_way_is_ok_at_each_step_and_a_log_is_written_and_read_back(
    run: Run, server: LogHubServer, exists: bool
) -> None:
    """All steps pass, also where the first write creates project and logstore; the log is there."""
    logstore = f"whole-{exists}".lower()
    project = f"healthy-{exists}".lower()
    for _ in range(1 + exists):
        code, found = run("-p", project, "-l", logstore)
        assert code == 0
    assert {name: mark for name, (mark, _) in found.items() if mark != "ok"} == {
        "dns": "skipped",
        "tls": "skipped",
        **({} if exists else {"list": "skipped"}),
    }
    assert "CPython" in found["version"][1]
    assert "LOGHUB_ACCESS_KEY_SECRET" in found["environment"][1]
    assert found["read"][1] == "the log written before is read back"
    logs = server.logs(project, logstore)
    assert [log.topic for log in logs] == ["producer-doctor"] * (1 + exists)


def test_nothing_is_written_if_that_is_asked_for(run: Run, server: LogHubServer) -> None:
    """With --no-write the key, the list and the shards are read, and nothing is stored."""
    assert run("-l", "quiet")[0] == 0
    code, found = run("-l", "quiet", "--no-write")
    assert (code, found["write"], found["read"]) == (0, ("skipped", "--no-write"), ("ok", "the key may read 2 shards"))
    assert server.count("p", "quiet") == 1


def test_the_way_to_each_of_several_endpoints_is_examined(
    server: LogHubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each endpoint has its own steps, numbered from the second on; all have to work."""
    assert main(["doctor", "--endpoint", f"http://127.0.0.1:1,{server.endpoint}"]) == 1
    printed = dict(re.findall(r"^\w+ +([a-z0-9-]+) +(.*)$", capsys.readouterr().out, re.MULTILINE))
    assert "127.0.0.1 port 1: " in printed["connection"]
    assert f"127.0.0.1 port {server.port} in " in printed["connection-2"]
    assert "this machine's clock is " in printed["clock-2"]
    assert printed["key"] == "connection failed"
    assert main(["doctor", "--endpoint", f"http://localhost:{server.port},{server.endpoint}"]) == 0
    key = re.search(r"^ok +key .*\n(  .*)$", capsys.readouterr().out, re.MULTILINE)
    assert key is not None, "a line for each endpoint"
    assert f"at {server.endpoint} (" in key[1]


def test_a_wrong_secret_fails_the_key_and_is_not_printed(run: Run) -> None:
    """The line says that the secret is wrong; what needs the key is skipped."""
    code, found = run("--access-key-secret", "hunter2-hunter2", secret="hunter2-hunter2")
    assert (code, _failed(found)) == (1, ["key"])
    assert "the access key secret does not belong to this access key id" in found["key"][1]
    assert found["read"] == ("skipped", "key failed")


@pytest.mark.parametrize(("offset", "words"), [(3600.0, "behind"), (-300.0, "ahead of")])
def test_a_wrong_clock_is_measured_and_the_later_steps_go_on(
    run: Run, server: LogHubServer, offset: float, words: str
) -> None:
    """The difference has its sign and what to do; the key, the write and the read pass."""
    server.clock_offset = offset
    code, found = run()
    assert (code, _failed(found)) == (1, ["clock"])
    told = re.match(rf"this machine's clock is (\d+) s {words} the server's: synchronize it", found["clock"][1])
    assert told is not None
    assert int(told[1]) == pytest.approx(abs(offset), abs=30)
    assert {found[name][0] for name in ("key", "write", "read")} == {"ok"}


def test_a_name_without_address_an_endpoint_without_listener_and_a_proxy_that_is_down(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fails at its own step, which names the host; a proxy's password is not printed."""
    code, found = run("--endpoint", "http://no-such-host.invalid")
    assert (code, _failed(found)) == (1, ["dns"])
    assert "p.no-such-host.invalid has no address" in found["dns"][1]
    assert "check the name, and the resolver" in found["dns"][1]
    code, found = run("--endpoint", "http://127.0.0.1:9")
    assert (code, _failed(found)) == (1, ["connection"])
    assert "check host and port of the endpoint, and any firewall" in found["connection"][1]
    monkeypatch.setenv("https_proxy", "http://user:pass%2Fword@127.0.0.1:9")
    code, found = run("--endpoint", "https://no-such-host.invalid", secret="pass%2Fword")
    assert (code, _failed(found)) == (1, ["connection"])
    assert found["proxy"] == ("ok", "http://127.0.0.1:9")
    assert "check host and port of the proxy" in found["connection"][1]


@pytest.mark.parametrize("trusted", [False, True])
def test_a_certificate_is_trusted_or_the_line_says_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    """An authority that is not trusted fails tls, with the file that is; a trusted one is named."""
    authority, bundle = trustme.CA(organization_name="Our Authority"), tmp_path / "ca.pem"
    (authority if trusted else trustme.CA()).cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with answering(401, "Unauthorized", "no") as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # refused handshakes are expected
        code, found = run("--endpoint", server.endpoint.replace("http:", "https:"), "--timeout", "3")
    assert code == 1
    mark, words = found["tls"]
    assert words.endswith(f"trusted are the authorities of {bundle}")
    if trusted:
        assert (mark, "Our Authority" in words, found["clock"][0]) == ("ok", True, "ok")
    else:
        assert (mark, _failed(found)) == ("FAILED", ["tls"])
        assert "is of an unknown authority: name a file with the authority by http.ca_bundle" in words
        assert found["clock"] == ("skipped", "tls failed")


@pytest.mark.parametrize(
    ("operation", "step", "permission"),
    [
        ("ListLogstores", "list", "log:ListLogStores"),
        ("PutLogs", "write", "log:PostLogStoreLogs"),
        ("PullLogs", "read", "log:GetCursorOrData"),
    ],
)
def test_a_permission_that_the_key_lacks_fails_its_own_step(
    run: Run, server: LogHubServer, operation: str, step: str, permission: str
) -> None:
    """List, write and read are reported each by itself, with the permission's name; a key that only sends may pass."""
    assert run()[0] == 0
    server.faults.add(answer(403, "Unauthorized", "denied"), operation=operation)
    code, found = run("--timeout", "3")
    assert (code, _failed(found)) == (1, [step])
    assert permission in found[step][1]
    code, found = run("--write-only", "--timeout", "3")
    assert (code, found["list"][0], found["read"][0]) == (step == "write", "skipped", "skipped")


def test_a_missing_target_is_an_error_of_usage_that_lists_what_to_give(
    server: LogHubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without project and logstore nothing is examined; the exit code is 2."""
    monkeypatch.delenv("LOGHUB_PROJECT")
    monkeypatch.delenv("LOGHUB_LOGSTORE")
    assert main(["doctor"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, "--project" in printed.err, "--logstore" in printed.err) == ("", True, True)
