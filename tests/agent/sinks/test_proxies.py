"""Sinks of requests, with proxies and with servers that require client certificates."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer.agent import AgentConfigError, SinkError
from producer.server import LogHubServer
from tests.agent.components import lines, made
from tests.agent.doubles import memory_channel, opened, taken
from tests.agent.sources.listeners import Served, serving
from tests.agent.sources.putting import reading
from tests.support.waiting import eventually

from .proxies import proxy

_SINKS = ["http", "otlp"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    for name in ("localhost", "client"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    return folder


@contextmanager
def _sink(kind: str, served: Served, files: Path, **options: Any) -> Iterator[Any]:
    asked = {"endpoint": f"https://localhost:{served.address[1]}/v1/logs", "authorities": str(files / "authority.pem")}
    if kind == "http":
        asked["format"] = "json"
    sink = made("sinks", kind, **asked, **options)
    try:
        yield sink
    finally:
        sink.close()


def test_a_proxys_refusal_without_credentials_is_reported_as_the_proxys_not_as_the_servers() -> None:
    """A proxy's refusal without credentials is reported as the proxy's, not as the server's."""
    with proxy() as near:
        sink = made("sinks", "http", endpoint="http://far.test/", proxy=near.url(""))
        with pytest.raises(SinkError, match=rf"407 \(through the proxy {near.url('')}\): the proxy requires a valid"):
            sink.write([lines("a")])
        sink.close()


@pytest.mark.parametrize("kind", _SINKS)
def test_events_go_through_a_tunnel_and_go_back_when_its_proxy_dies(kind: str, files: Path) -> None:
    """Events pass a tunnel with a password; when the proxy stops, events go back, and no message has the password."""
    with serving(kind, certificate=str(files / "localhost.pem")) as served, proxy() as near:
        with _sink(kind, served, files, proxy=near.url()) as sink:
            sink.write([lines("a")])
            near.die()
            with pytest.raises(SinkError) as dead:
                sink.write([lines("b")])
            near.dead = False
            sink.write([lines("b")])
        wrong = _sink(kind, served, files, proxy=near.url("me:wrong@"))
        told = rf"407 \(through the proxy {near.url('')}\): the proxy requires a valid user"
        with wrong as stranger, pytest.raises(SinkError, match=told) as refused:
            stranger.write([lines("c")])
        assert served.outlet.bodies == [b"a", b"b"]
        assert {first.split()[0] for first in near.asked} == {b"CONNECT"}
    assert not any(word in f"{each.value!r} {each.value}" for each in (dead, refused) for word in ("hidden", "wrong"))


@pytest.mark.parametrize(("given", "ways"), [(None, 1), ("none", 0)], ids=["environment", "none"])
def test_https_proxy_is_used_by_a_sink_without_a_proxy_option_proxy_none_ignores_it(
    given: str | None, ways: int, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTPS_PROXY is used by a sink without a proxy option; proxy = none ignores it."""
    with serving("http", certificate=str(files / "localhost.pem")) as served, proxy() as near:
        monkeypatch.setenv("HTTPS_PROXY", near.url())
        monkeypatch.setenv("NO_PROXY", "")
        with _sink("http", served, files, **({} if given is None else {"proxy": given})) as sink:
            sink.write([lines("a")])
        assert (served.outlet.bodies, len(near.asked)) == ([b"a"], ways)


@pytest.mark.parametrize("kind", _SINKS)
def test_a_server_that_requires_client_certificates_accepts_the_sinks_and_refuses_a_sink_without_one(
    kind: str, files: Path
) -> None:
    """A server that requires client certificates accepts the sink's, and refuses a sink without one."""
    known = {"certificate": str(files / "localhost.pem"), "client_authorities": str(files / "authority.pem")}
    with serving(kind, **known) as served:
        with _sink(kind, served, files, certificate=str(files / "client.pem")) as sink:
            sink.write([lines("a")])
        with _sink(kind, served, files) as stranger, pytest.raises(SinkError):
            stranger.write([lines("b")])
        assert served.outlet.bodies == [b"a"]


def test_loghub_is_reached_through_a_proxy(tmp_path: Path) -> None:
    """The sink and the source ``loghub`` reach a host through a proxy that resolves its name."""
    with LogHubServer() as server:
        options = {"project": "p", "logstore": "l", "endpoint": "http://far.invalid"}
        options |= {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
        options |= {"proxy": server.endpoint}
        sink = made("sinks", "loghub", **options)
        sink.write([lines("a")])
        sink.close()
        assert server.count("p", "l") == 1
        with opened(memory_channel(tmp_path)) as channel:
            with reading("loghub", tmp_path, {"c": channel}, **options):
                eventually(lambda: channel.held)
            assert taken(channel) == [b"a"]


@pytest.mark.parametrize("kind", [*_SINKS, "loghub"])
@pytest.mark.parametrize(
    "url",
    [
        "proxy:3128",
        "socks5://hidden@proxy:1",
        "http://",
        "http://hidden@proxy:x",
        "http://hidden@proxy:1\n",
        "http://hidden@pro xy:1",
        "http://hidden@\x00:1",
    ],
)
def test_an_invalid_proxy_url_is_refused_before_the_start_and_not_shown(kind: str, url: str) -> None:
    """An invalid proxy URL is refused before the start, and not shown, since it may contain a password."""
    account = {"project": "p", "logstore": "l", "access_key_id": "i", "access_key_secret": "s"}
    with pytest.raises(AgentConfigError, match="proxy: must be a URL such as") as caught:
        made("sinks", kind, endpoint="http://here", proxy=url, **(account if kind == "loghub" else {}))
    assert "hidden" not in str(caught.value)
