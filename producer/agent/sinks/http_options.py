"""Options of all sinks that send HTTP requests: server, authentication, TLS, proxy and limits."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...model.config import HttpConfig
from ...model.errors import ConfigError
from ...model.options import option
from ...sinks.http.ca_bundle import client_context
from ..config.options import missing_file
from ..flow.held_back import HELD_BYTES
from ..protocols.proxies import PROXY, proxies_of
from ..protocols.tls_files import load_authorities, load_own, validity_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """Options of all sinks that send HTTP requests."""

    endpoint: str = option(doc="URL of the server")
    batch_size: int = option(1000, least=1, doc="maximum number of events in a request")
    most_bytes: int = option(
        1 << 20, least=1, unit="bytes", doc="maximum bytes of a request, unless a single event has more"
    )
    compress: bool = option(True, doc="compress bodies with gzip")
    connect_timeout: float = option(5.0, least=0.001, doc="seconds to connect")
    request_timeout: float = option(30.0, least=0.001, doc="seconds that the server may be silent")
    headers: Mapping[str, str] = option({}, secret=True, doc="further headers of each request")
    user: str | None = option(None, doc="user for basic authentication")
    password: str | None = option(None, secret=True, doc="password for basic authentication")
    token: str | None = option(None, secret=True, doc="token for bearer authentication")
    verify: bool = option(True, doc="check the server's certificate")
    authorities: str | None = option(None, doc="PEM file of trusted authorities; empty for certifi's")
    certificate: Path | None = option(None, doc="PEM file with a client certificate")
    key: Path | None = option(None, doc="PEM file with its key, if it is not in the same file")
    proxy: str | None = option(None, secret=True, doc=PROXY)
    refused: tuple[str, ...] = option(
        ("400", "413", "415", "422"), doc="statuses that refuse events permanently: they go to the dead letters"
    )

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("endpoint", "must be a URL of http or https", self.endpoint)
        if parts.username or parts.password:
            raise ConfigError("endpoint", "must not contain a password: use the options user and password", "***")
        if self.token is not None and self.user is not None:
            raise ConfigError("token", "must not be given together with user and password", "***")
        check_statuses(self.refused)
        if self.key is not None and self.certificate is None:
            raise ConfigError("key", "needs certificate, which is missing", str(self.key))
        proxies_of(self.proxy)

    def missing(self) -> Iterator[ConfigError]:
        """Yield an error for each certificate file that cannot be used, or has expired."""
        yield from missing_file("authorities", self.authorities)
        try:
            if self.certificate is not None:
                load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.certificate, self.key)
        except ConfigError as error:
            yield error
        yield from validity_errors(self.certificate, self.key)

    def holds(self) -> int:
        """Return the maximum bytes held: a delivery, its encoded events, one request, and refused events."""
        return 4 * self.most_bytes + HELD_BYTES

    def config(self) -> HttpConfig:
        """Return the configuration of the transport."""
        return HttpConfig(
            connect_timeout_ms=max(1, round(self.connect_timeout * 1000)),
            read_timeout_ms=max(1, round(self.request_timeout * 1000)),
            verify=self.verify,
            ca_bundle=self.authorities,
            proxies=proxies_of(self.proxy),
        )

    def tls(self, config: HttpConfig) -> ssl.SSLContext | None:
        """Return the TLS context for the server; None without TLS.

        :raises ConfigError: the files cannot be used.
        """
        if not self.endpoint.lower().startswith("https:"):
            return None
        if self.verify and self.authorities is not None:  # so that an error names the option
            load_authorities(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "authorities", Path(self.authorities))
        context = client_context(config)
        if self.certificate is not None:
            load_own(context, self.certificate, self.key)
        return context

    def request_headers(self, agent: str, own: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of each request.

        :param agent: the User-Agent.
        :param own: headers of the sink, which those of the options replace.
        """
        made = {"Host": urlsplit(self.endpoint).netloc, "User-Agent": agent, "Accept": "*/*"}
        if self.compress:
            made["Content-Encoding"] = "gzip"
        if self.token is not None:
            made["Authorization"] = f"Bearer {self.token}"
        if self.user is not None:
            pair = f"{self.user}:{self.password or ''}"
            made["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        return made | dict(own) | dict(self.headers)


def check_statuses(statuses: Sequence[str]) -> None:
    """Check statuses, and groups of statuses.

    :raises ConfigError: one is neither.
    """
    for status in statuses:
        if len(status) != 3 or not (status.isdecimal() or (status[0].isdecimal() and status[1:] == "XX")):
            raise ConfigError("rollback, backoff and refused", "must name statuses such as 503 or 5XX", status)


def secrets_of(options: RequestOptions, headers: Mapping[str, str], proxies: Mapping[str, str]) -> set[str | None]:
    """Return secrets that an answer may repeat: some error pages show the whole request."""
    ways = [urlsplit(url) for url in proxies.values()]
    pairs = [f"{unquote(way.username)}:{unquote(way.password)}" for way in ways if way.username and way.password]
    found = {options.password, options.token, *options.headers.values(), urlsplit(options.endpoint).query}
    found |= {headers.get("Authorization", "").rpartition(" ")[2], *(way.password for way in ways)}
    found |= {text for pair in pairs for text in (pair.partition(":")[2], b64encode(pair.encode()).decode())}
    return found
