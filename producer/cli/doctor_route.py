"""The steps of ``producer doctor`` between this machine and an endpoint: proxy, DNS, connection, TLS, clock."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from ..model.config import HttpConfig
from ..model.errors import ProducerError
from ..runtime.clock import SystemClock
from ..sinks.http.attempts import Sent
from ..sinks.http.ca_bundle import client_context, file_of_authorities
from ..sinks.http.dns import addresses_of
from ..sinks.http.failures import error_of_exception
from ..sinks.http.opening import Place
from ..sinks.http.proxies import place_of, proxies_for, proxy_of
from ..sinks.http.server_time import clock_offset
from ..sinks.http.transport import Target, Transport
from ..text.addresses import is_address

#: Maximum tolerated difference of the clocks, seconds.
_MOST_SKEW = 10.0


class StepError(ProducerError):
    """Raised by a step that failed; the message says what to do."""


class NotNeededError(Exception):
    """Raised by a step that does not apply, with the reason."""


class Route:
    """The network route to an endpoint. Each step returns its finding or raises; later steps use its results.

    :param timeout: the limit of a step, seconds.
    :param secrets: the list of secrets to mask; the steps add those of a proxy.
    """

    def __init__(self, target: Target, http: HttpConfig, timeout: float, secrets: list[str | None]) -> None:
        self._target, self._http, self._timeout, self._secrets = target, http, timeout, secrets
        self._place = Place.of(target.base_url)
        self._proxy = ""
        self._addresses: list[str] = []

    def find_proxy(self) -> str:
        """Find the proxy."""
        url = proxy_of(self._target.base_url, proxies_for(self._http, self._target.base_url))
        if not url:
            return "none"
        self._proxy = url
        password = urlsplit(url).password
        self._secrets += [password, password and unquote(password)]
        return place_of(url)

    def resolve(self) -> str:
        """Find the addresses of the proxy, or of the endpoint."""
        place = Place.of(self._proxy) if self._proxy else self._place
        if is_address(place.host):
            self._addresses = [place.host]
            raise NotNeededError(f"{place.host} is an address")
        end = time.monotonic() + self._timeout
        try:
            self._addresses = addresses_of(place.host, place.port, lambda: max(0.001, end - time.monotonic()))
        except (OSError, UnicodeError) as error:
            advice = "check the name, and the resolver of this machine (/etc/resolv.conf)"
            raise StepError(f"{place.host} has no address: {error}: {advice}") from error
        return f"{place.host} is {', '.join(self._addresses)}"

    def connect(self) -> str:
        """Open a connection."""
        began = time.monotonic()
        with self._connected() as connection:
            address, port = connection.getpeername()[:2]
        return f"{address} port {port} in {(time.monotonic() - began) * 1000:.0f} ms"

    def _connected(self) -> socket.socket:
        port = (Place.of(self._proxy) if self._proxy else self._place).port
        error: OSError | None = None
        for address in self._addresses:
            try:
                return socket.create_connection((address, port), self._timeout / len(self._addresses))
            except OSError as refused:
                error = refused
        peer = "the proxy" if self._proxy else "the endpoint"
        advice = f"check host and port of {peer}, and any firewall"
        raise StepError(f"{', '.join(self._addresses)} port {port}: {error}: {advice}") from error

    def handshake(self) -> str:
        """Check the certificate."""
        if self._place.scheme != "https":
            raise NotNeededError("the endpoint is http: logs travel unencrypted")
        if self._proxy:
            raise NotNeededError("the proxy is between: the next step says whether the certificate is trusted")
        context = client_context(self._http)
        context.set_alpn_protocols(["http/1.1"])
        trusted = file_of_authorities(self._http)
        try:
            with self._connected() as plain, context.wrap_socket(plain, server_hostname=self._place.host) as secured:
                certificate: Any = secured.getpeercert()
                version = secured.version()
        except OSError as error:  # errors of ssl, too
            message = error_of_exception(error, Sent.NOTHING).message
            raise StepError(f"{message}; trusted are the authorities of {trusted}") from error
        issuer = ", ".join(value for part in certificate["issuer"] for name, value in part if "Name" in name)
        until = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
        return f"{version}; a certificate of {issuer}, until {until:%Y-%m-%d}; trusted are the authorities of {trusted}"

    def compare_clocks(self) -> str:
        """Compare this machine's clock with the server's."""
        clock = SystemClock()
        transport = Transport(self._http, 1, clock, "doctor", warns=False)
        try:
            proxies = transport.proxies_for(self._target.base_url)
            headers = {
                "Host": self._target.host,
                "User-Agent": self._http.user_agent,
                "x-log-apiversion": "0.6.0",
            }
            began = clock.time()
            _, received = transport.request("GET", self._target.base_url, "/logstores", {}, headers, b"", proxies)
            skew = clock_offset(received.get("Date"), (began + clock.time()) / 2)
        finally:
            transport.close()
        if skew is None:
            raise StepError("the answer has no Date, and is not LogHub's: check the endpoint, and any proxy before it")
        words = f"this machine's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} the server's"
        if abs(skew) > _MOST_SKEW:
            raise StepError(f"{words}: synchronize it (NTP): requests are corrected, but logs have this time")
        return words
