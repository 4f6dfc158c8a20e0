"""How a request is written to its connection."""

from __future__ import annotations

import pytest

from producer import HttpConfig
from producer.clock import SystemClock
from producer.errors import MisconfiguredError
from producer.sinks.http.connections import Followed
from producer.sinks.http.transport import Transport


class Connection:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        """As a socket does."""
        self.sent.append(data)


class FollowedConnection(Followed, Connection):
    """As urllib3's connections become one."""


@pytest.mark.parametrize(("size", "calls"), [(1, 1), (16 * 1024, 1), (16 * 1024 + 1, 2)])
def test_a_small_body_leaves_with_its_head(size: int, calls: int) -> None:
    """A request of one log is one call of the socket; a large body is not copied."""
    connection = FollowedConnection()
    connection._body = b"x" * size
    connection.send(b"head")
    assert b"".join(connection.sent) == b"head" + b"x" * size
    assert len(connection.sent) == calls


@pytest.mark.parametrize("value", ["a\nb", "a\r\nAuthorization: b", "\u4e2d"])
def test_a_header_that_cannot_be_sent_is_told_before_anything_leaves(value: str) -> None:
    """No header can bring another one with it."""
    transport = Transport(HttpConfig(proxies={}), 1, SystemClock(), "header")
    try:
        with pytest.raises(MisconfiguredError, match=r"could not be made.*User-Agent"):
            transport.request(
                "POST",
                "http://127.0.0.1:9",
                "/",
                {},
                {"Host": "h", "User-Agent": value},
                b"",
                transport.proxies_for(""),
            )
    finally:
        transport.close()
