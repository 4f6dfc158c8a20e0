"""Errors caused by a proxy have its name, and not its password."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from producer import HttpConfig, Producer, ProducerConfig, ProjectConfig
from producer.model.errors import ProducerError, ResultFailedError
from producer.reading.errors import LogHubReadError
from producer.reading.signed_client import Question, SignedClient
from producer.sinks.http.proxies import through

from . import hostile_server as hostile

_ANSWERS = {
    "407": b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
    "502": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\n<p/>",
    "closed": b"",
}


@contextmanager
def _proxy(answer: bytes) -> Iterator[int]:
    """Run a proxy that gives this answer to every request; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the connection was closed
                while True:
                    connection, _ = listener.accept()
                    with connection, connection.makefile("rb") as asked:
                        while asked.readline().strip():
                            pass
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("answer", _ANSWERS)
def test_an_error_behind_a_proxy_names_it(answer: str, scheme: str) -> None:
    """Errors of a send, of ``check`` and of a read name the proxy; 407 has the remedy, none has the password."""
    with _proxy(_ANSWERS[answer]) as port:
        proxy = f"http://me:hidden@127.0.0.1:{port}"
        project = ProjectConfig("p", endpoint=f"{scheme}://far.test", access_key_id="a", access_key_secret="s")
        config = ProducerConfig(retries=0, http=HttpConfig(proxies={"http": proxy, "https": proxy}))
        with Producer(project, config=config) as producer:
            with pytest.raises(ProducerError) as checked:
                producer.check("p")
            future = producer.send("p", "l", {"a": "b"}, urgent=True)
            sent = future.exception(10)
        with (
            SignedClient(project, "here", names={"endpoint": "endpoint"}, config=config) as client,
            pytest.raises(LogHubReadError) as read,
        ):
            client.ask("GetLogs", Question("/logstores/l"), lambda *_: None)
    for told in (str(checked.value), str(sent), str(read.value)):
        assert f"(through the proxy http://127.0.0.1:{port})" in told
        assert "hidden" not in told
        assert answer == "closed" or answer in told
        assert answer != "407" or "requires a valid user and password" in told


def _open_and_talk_on(connection: socket.socket, stop: threading.Event) -> None:
    hostile.open_no_tunnel(connection, stop)
    hostile.speak_no_tls(connection, stop)


@pytest.mark.parametrize(
    "page",
    [
        "{name}: {value}\r\n",
        '{{"{name}": "{value}"}}',
        "<table><tr><td>{name}</td>\n <td class='x'>{value}</td></tr></table>",
    ],
)
@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request", "403 Forbidden", "502 Bad Gateway"])
def test_a_page_that_shows_the_request_tells_no_credentials(status: str, page: str) -> None:
    """A proxy in debugging mode shows the request in its page: the error has the page without credentials."""
    coded = base64.b64encode(b"me:hidden").decode()
    sent = {"Proxy-Authorization": f"Basic {coded}", "x-acs-security-token": "STS.token", "authorization": "LOG a:sign"}
    shown = "Sorry. " + "".join(page.format(name=name, value=value) for name, value in sent.items())
    answer = f"HTTP/1.1 {status}\r\nContent-Length: {len(shown)}\r\n\r\n{shown}".encode()
    with _proxy(answer) as port:
        target = {"endpoint": "http://far.test", "access_key_id": "a", "access_key_secret": "s"}
        project = ProjectConfig("p", security_token="STS.token", **target)
        config = ProducerConfig(retries=0, http=HttpConfig(proxies={"http": f"http://me:hidden@127.0.0.1:{port}"}))
        with Producer(project, config=config) as producer:
            error = producer.send("p", "l", {"a": "b"}, urgent=True).exception(timeout=20)
    assert "Sorry. " in str(error)
    assert not [secret for secret in (coded, "STS.token", "LOG a:sign") if secret in str(error)]


def test_if_a_confirmed_tunnel_does_not_speak_tls_the_error_also_blames_the_proxy() -> None:
    """If a confirmed tunnel does not speak TLS, the error also blames the proxy."""
    with hostile.serve(_open_and_talk_on) as port:
        project = ProjectConfig("p", endpoint="https://far.test", access_key_id="a", access_key_secret="s")
        config = ProducerConfig(http=HttpConfig(proxies={"https": f"http://127.0.0.1:{port}"}))
        with Producer(project, config=config) as producer, pytest.raises(ProducerError) as told:
            producer.check("p")
    assert "write http:// in the endpoint" in str(told.value)
    assert "or it is the proxy that answers in its place" in str(told.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_asks_for_a_password_forwarded_nothing(scheme: str) -> None:
    """A proxy that asks for a password forwarded nothing: there is one attempt, and nothing was stored."""
    with _proxy(_ANSWERS["407"]) as port:
        proxy = f"http://127.0.0.1:{port}"
        project = ProjectConfig("p", endpoint=f"{scheme}://far.test", access_key_id="a", access_key_secret="s")
        http = HttpConfig(proxies={"http": proxy, "https": proxy})
        with Producer(project, config=ProducerConfig(http=http)) as producer:
            error = producer.send("p", "l", {"a": "b"}, urgent=True).exception(10)
    assert isinstance(error, ResultFailedError)
    (attempt,) = error.result.attempts
    assert (attempt.error_code, attempt.http_status) == ("ProxyAuthenticationRequired", 407)
    assert not error.result.may_have_been_stored


@pytest.mark.parametrize(
    ("location", "told"),
    [
        (b"https://me:hidden@portal.test:8443/login?next=hidden#hidden", "'https://portal.test:8443/login'"),
        (b"/login", "'/login'"),
        (b"https://[hidden", "'…'"),
        (b"https://portal.test/" + b"x" * 5000, f"'https://portal.test/{'x' * 180}'"),
    ],
)
def test_the_error_of_a_redirect_has_the_new_place_without_possible_secrets(location: bytes, told: str) -> None:
    """The error of a redirect has the new place, without possible secrets; the redirect is not followed."""
    answer = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
    with _proxy(answer) as port:
        project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
        with Producer(project, config=ProducerConfig(retries=0)) as producer:
            error = producer.send("p", "l", {"a": "b"}, urgent=True).exception(10)
    assert f"a redirect to {told}, which is not followed: " in str(error)
    assert "hidden" not in str(error)


@pytest.mark.parametrize(
    ("proxy", "told"),
    [
        ("http://me:hidden@proxy:3128", " (through the proxy http://proxy:3128)"),
        ("http://me:hidden@[::1]:3128/", " (through the proxy http://[::1]:3128)"),
        ("proxy", " (through the proxy http://proxy)"),
        ("socks5h://me@proxy:1080", " (through the proxy socks5h://proxy:1080)"),
    ],
)
def test_a_proxy_is_named_by_scheme_address_and_port_ipv6_in_brackets(proxy: str, told: str) -> None:
    """A proxy is named by scheme, address and port, IPv6 in brackets; without a proxy there is no name."""
    assert through("https://far.test", {"https": proxy}) == told
    assert through("http://far.test", {"https": proxy}) == through("http://far.test", {}) == ""
