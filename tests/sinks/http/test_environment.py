"""The settings that requests take from the environment, and the errors about them before anything is sent."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from producer import ConfigError, Producer, ProducerConfig, ProjectConfig
from producer.agent import AgentConfigError
from producer.model.config import HttpConfig
from producer.reading.signed_client import SignedClient
from producer.sinks.http.proxies import proxies_for
from tests.agent.components import made

_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in _BUNDLES:
        monkeypatch.delenv(name, raising=False)


def producer(endpoint: str = "https://far.test", **http: object) -> Producer:
    project = ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s")
    return Producer(project, config=ProducerConfig(http=HttpConfig(**http)))  # type: ignore[arg-type]


def reader(endpoint: str, **http: object) -> SignedClient:
    project = ProjectConfig("p", endpoint=endpoint, access_key_id="a", access_key_secret="s")
    config = ProducerConfig(http=HttpConfig(**http))  # type: ignore[arg-type]
    return SignedClient(project, "here", names={}, config=config)


@pytest.mark.parametrize("variable", ["NO_PROXY", "no_proxy"])
@pytest.mark.parametrize(
    ("exceptions", "endpoint", "excepted"),
    [
        ("far.test", "http://p.far.test", True),
        (".far.test", "http://p.far.test", True),
        (".far.test", "http://far.test", True),
        ("*.far.test", "http://p.far.test", True),
        ("FAR.test", "http://P.far.TEST", True),
        ("far.test.", "http://p.far.test", True),
        ("far.test", "http://p.far.test.", True),
        ("ar.test", "http://p.far.test", False),
        ("other.test, far.test", "http://p.far.test", True),
        ("other.test far.test", "http://p.far.test", True),
        ("*", "http://p.far.test", True),
        ("other.test,*", "http://p.far.test", True),
        (" * ", "http://p.far.test", True),
        ("far.test:8080", "http://p.far.test:8080", True),
        ("far.test:8080", "http://p.far.test", False),
        ("far.test:80", "http://p.far.test", True),
        ("far.test:443", "https://p.far.test", True),
        ("10.1.2.3", "http://10.1.2.3:8080", True),
        ("10.1.2.3:8080", "http://10.1.2.3:8080", True),
        ("10.1.2.3:80", "http://10.1.2.3:8080", False),
        ("10.0.0.0/8", "http://10.1.2.3:8080", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.0.0.0/33,far/", "http://10.1.2.3", False),
        ("::1", "http://[::1]:8080", True),
        ("0:0:0:0:0:0:0:1", "http://[::1]", True),
        ("[::1]", "http://[::1]:8080", True),
        ("[::1]:8080", "http://[::1]:8080", True),
        ("[::1]:80", "http://[::1]:8080", False),
        ("fd00::/8", "http://[fd00::5]", True),
        ("fd00::/8", "http://[fe00::5]", False),
        (",,.,", "http://p.far.test", False),
        ("", "http://p.far.test", False),
    ],
)
def test_names_with_and_without_dots_and_stars_ports_addresses_and_networks_are_exempted_in_any_case(
    variable: str, exceptions: str, endpoint: str, excepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names with and without dots and stars, ports, addresses and networks are exempted in any case, and
    nothing else.
    """
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("https_proxy", "http://proxy.test:3128")
    monkeypatch.setenv(variable, exceptions)
    assert (proxies_for(HttpConfig(), endpoint) == {}) is excepted
    assert proxies_for(HttpConfig(proxies={"http": "http://own:1"}), endpoint) == {"http": "http://own:1"}


_WRONG = [
    "http://me:hidden@",
    "http://me:hidden@proxy:x",
    "http://me:hidden@proxy:1\n",
    "http://me:hidden@pro xy:1",
    "ftp://me:hidden@proxy:1",
    "http://me:hidden/x@proxy:1",
    "http://me:hidden#x@proxy:1",
    "http://me?hidden@proxy:1",
    "http://me:1234?hidden@proxy:1",
]


@pytest.mark.parametrize("url", _WRONG)
def test_producers_and_readers_report_an_invalid_proxy_of_the_options_or_the_environment(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers and readers report an invalid proxy of the options or the environment, without its password."""
    for make in (producer, reader):
        with pytest.raises(ConfigError, match=r"http\.proxies: must be a URL such as") as given:
            make("https://far.test", proxies={"https": url})
        with monkeypatch.context() as environment:
            environment.setenv("HTTPS_PROXY", url)
            with pytest.raises(ConfigError, match="the proxy of the environment: must be a URL such as") as found:
                make("https://far.test")
        assert not any("hidden" in f"{each.value!r} {each.value}" for each in (given, found))


@pytest.mark.parametrize(
    "url", ["http://me:hidden日@proxy:1", "me:hidden日@proxy:1", "https://m%E2%82%AC:hidden@proxy:1"]
)
def test_a_password_that_cannot_be_sent_is_refused_when_the_producer_is_made_not_by_every_send(url: str) -> None:
    """A password that cannot be sent is refused when the producer is made, not by every send."""
    for make in (producer, reader):
        with pytest.raises(ConfigError, match=r"http\.proxies: must have a user and a password of latin-1") as given:
            make("https://far.test", proxies={"https": url})
        assert "hidden" not in f"{given.value!r} {given.value}"


def test_a_proxy_for_another_scheme_or_for_exempted_hosts_may_stay_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proxy for another scheme or for exempted hosts may stay in the environment."""
    monkeypatch.setenv("HTTP_PROXY", "ftp://proxy:1")
    producer("https://far.test").close()
    monkeypatch.setenv("NO_PROXY", "far.test")
    producer("http://far.test").close()


@pytest.mark.parametrize("url", ["http://me:gr%C3%BCn@proxy:1", "http://grün:x@proxy:1", "socks5://me:日@proxy:1"])
def test_a_proxys_password_that_can_be_sent_is_taken(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords in latin-1 are accepted; a SOCKS proxy takes any."""
    monkeypatch.setattr("producer.sinks.http.proxies.is_installed", lambda _: True)
    proxies_for(HttpConfig(proxies={"https": url}), "https://far.test")


@pytest.mark.parametrize("url", ["proxy.test:3128", "http://me:s%2Fe@[::1]:3128/", "https://proxy.test"])
def test_a_proxy_without_a_scheme_means_http(url: str) -> None:
    """A proxy without a scheme means http."""
    producer(proxies={"https": url}).close()


def test_a_socks_proxy_says_which_package_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SOCKS proxy without its package is refused before anything is sent."""
    monkeypatch.setattr("producer.sinks.http.proxies.is_installed", lambda _: False)
    monkeypatch.setenv("ALL_PROXY", "socks5://me:hidden@proxy:1080")
    with pytest.raises(ConfigError, match="socks5 needs the package PySocks") as told:
        producer()
    assert "hidden" not in repr(told.value)


@pytest.mark.parametrize("variable", _BUNDLES)
def test_producers_readers_and_the_agents_sinks_report_invalid_authorities(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers, readers and the agent's sinks report invalid authorities, unless nothing is verified or there is no
    TLS.
    """
    missing = str(tmp_path / "missing.pem")
    monkeypatch.setenv(variable, missing)
    for make in (producer, reader):
        with pytest.raises(ConfigError, match=rf"^{variable} of the environment: must be a PEM file .*No such file"):
            make("https://far.test")
        make("https://far.test", verify=False).close()
        make("https://far.test", ca_bundle=certifi.where()).close()
        make("http://far.test").close()
    with pytest.raises((ConfigError, AgentConfigError), match=variable):
        made("sinks", "http", endpoint="https://far.test")


def test_authorities_of_the_environment_come_in_the_order_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REQUESTS_CA_BUNDLE precedes CURL_CA_BUNDLE; an empty one does not count."""
    monkeypatch.setenv("CURL_CA_BUNDLE", str(tmp_path / "missing.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    producer().close()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "")
    with pytest.raises(ConfigError, match=r"^CURL_CA_BUNDLE"):
        producer()
