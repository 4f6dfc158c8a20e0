"""Names are resolved within the limits of an attempt, whatever the resolver does."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from producer import HttpConfig, Producer, ProducerConfig, ProjectConfig
from producer.model.errors import UnreachableError
from producer.runtime.clock import SystemClock
from producer.server import LogHubServer
from producer.sinks.http import dns
from producer.sinks.http.transport import Transport
from tests.support.clocks import ManualClock
from tests.support.waiting import PATIENCE, Call, eventually, passed

_ASKED = "/", {}, {"Host": "h"}, b"", {}  # type: ignore[var-annotated]
_HOST = "p.hangs.test"


class Hanging:
    """A resolver that hangs for one host until it is released, and answers for others.

    :ivar asked: how often it was called for that host.
    """

    def __init__(self) -> None:
        self.asked, self.let_go, self.began = 0, threading.Event(), threading.Event()
        self._resolve = socket.getaddrinfo

    def __call__(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if host != _HOST:
            return self._resolve(host, *arguments, **options)
        self.asked += 1
        self.began.set()
        self.let_go.wait(PATIENCE)
        return self._resolve("127.0.0.1", *arguments, **options)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    """Install a hanging resolver; check that no thread waits for it in the end."""
    hanging = Hanging()
    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    yield hanging
    hanging.let_go.set()
    eventually(lambda: all(lookup.answered.is_set() for lookup in list(dns._asked.values())))
    dns._asked.clear()


def _over() -> float:
    raise TimeoutError("timed out")


def _transport(clock: Any = None, **limits: int) -> Transport:
    return Transport(HttpConfig(proxies={}, **limits), 1, clock or SystemClock(), "named")


def test_a_resolver_that_hangs_holds_an_attempt_no_longer_than_a_connection_may_take(resolver: Hanging) -> None:
    """The error names the host, and says that nothing was sent."""
    transport = _transport(connect_timeout_ms=30)
    with pytest.raises(UnreachableError, match=f"the resolver has not answered for '{_HOST}'") as caught:
        transport.request("GET", f"http://{_HOST}:9", *_ASKED)
    assert "no connection in time" in str(caught.value)
    assert not caught.value.may_have_been_stored
    transport.close()


def test_the_limit_of_an_attempt_holds_for_names_too(resolver: Hanging) -> None:
    """The limit holds for name resolution, also if it is moved nearer meanwhile."""
    clock = ManualClock()
    transport = _transport(clock, connect_timeout_ms=600_000, attempt_timeout_ms=5_000)
    attempt = Call(lambda: transport.request("GET", f"http://{_HOST}:9", *_ASKED))
    passed(resolver.began)
    assert not attempt.done
    clock.advance(5.1)
    with pytest.raises(UnreachableError, match="resolver"):
        attempt.result()
    transport.close()


def test_repeated_attempts_share_one_thread_for_a_name_whose_resolution_hangs(resolver: Hanging) -> None:
    """Repeated attempts share one thread for a name whose resolution hangs."""
    transport = _transport(connect_timeout_ms=20)
    for _ in range(3):
        with pytest.raises(UnreachableError):
            transport.request("GET", f"http://{_HOST}:9", *_ASKED)
    assert resolver.asked == 1
    assert [thread.name for thread in threading.enumerate()].count("producer-resolver") == 1
    with LogHubServer() as server:
        waiting = [_transport(), _transport()]
        url = f"http://{_HOST}:{server.port}"
        calls = [Call(lambda one=one: one.request("GET", url, *_ASKED)) for one in waiting]
        eventually(lambda: resolver.asked == 2)
        resolver.let_go.set()
        assert [call.result()[0].status for call in calls] == [200, 200]
        for one in (transport, *waiting):
            one.close()


def test_an_address_asks_no_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """An IP address needs no resolver and no thread."""
    monkeypatch.setattr(dns._Lookup, "start", lambda _: pytest.fail("asked"))
    with LogHubServer() as server:
        transport = _transport()
        assert transport.request("GET", server.endpoint, *_ASKED)[0].status == 200
        transport.close()


def test_where_no_thread_can_be_started_the_caller_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the exit of the interpreter, remaining records are still delivered."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert "127.0.0.1" in dns.addresses_of("localhost", 80, lambda: 5.0)
    with pytest.raises(socket.gaierror):
        dns.addresses_of("nowhere.invalid", 80, lambda: 5.0)


def test_a_name_without_an_address_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver of gevent, or another that replaces Python's, may return no address: the attempt can be retried."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [])
    transport = _transport()
    with pytest.raises(UnreachableError, match=r"failed to resolve 'p\.hangs\.test': it has no addresses"):
        transport.request("GET", f"http://{_HOST}", *_ASKED)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(resolver: Hanging) -> None:
    """A forked child calls the resolver itself."""
    parent = Call(lambda: dns.addresses_of(_HOST, 9, lambda: PATIENCE))
    passed(resolver.began)
    child = os.fork()
    if not child:
        resolver._resolve, code = (lambda *_, **__: [(0, 0, 0, "", ("192.0.2.1", 9))]), 1
        try:
            resolver.let_go = threading.Event()
            resolver.let_go.set()
            code = int(dns.addresses_of(_HOST, 9, lambda: 5.0) != ["192.0.2.1"])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    resolver.let_go.set()
    assert parent.result() == ["127.0.0.1"]


def test_a_resolver_that_hangs_for_one_project_delays_neither_other_projects_nor_close(resolver: Hanging) -> None:
    """With a single IO thread, other projects are delivered; the record of the hanging name fails within the time of
    ``close``.
    """
    http = HttpConfig(proxies={}, connect_timeout_ms=50)
    config = ProducerConfig(io_thread_count=1, linger_ms=1, retries=1000, http=http)
    with LogHubServer() as server:
        keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
        hangs = ProjectConfig("p", endpoint=f"http://hangs.test:{server.port}", **keys)
        other = ProjectConfig("q", endpoint=server.endpoint, **keys)
        producer = Producer(hangs, other, config=config)
        stuck = producer.send("p", "l", {"k": "v"})
        passed(resolver.began)
        assert producer.send("q", "l", {"k": "v"}).result(PATIENCE).successful
        Call(lambda: producer.close(0.2)).result()
        assert "the resolver has not answered" in str(stuck.exception(0))


def test_addresses_that_come_too_late_serve_the_next_attempt(resolver: Hanging) -> None:
    """Late addresses serve one later attempt; otherwise a slow resolver would be asked in vain forever."""
    with pytest.raises(TimeoutError, match="the resolver has not answered"):
        dns.addresses_of(_HOST, 9, _over)
    passed(resolver.began)
    resolver.let_go.set()
    passed(dns._asked[_HOST, 9].answered)
    for asked in (1, 2):
        assert dns.addresses_of(_HOST, 9, lambda: PATIENCE) == ["127.0.0.1"]
        assert resolver.asked == asked


def test_addresses_that_were_not_used_in_time_are_forgotten_since_they_change(
    resolver: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Addresses that were not used in time are forgotten, since they change."""
    now = [1000.0]
    monkeypatch.setattr(dns, "monotonic", lambda: now[0])
    with pytest.raises(TimeoutError, match="the resolver has not answered"):
        dns.addresses_of(_HOST, 9, _over)
    resolver.let_go.set()
    passed(dns._asked[_HOST, 9].answered)
    now[0] += 61
    assert dns.addresses_of("localhost", 9, lambda: PATIENCE)
    assert (_HOST, 9) not in dns._asked


def test_a_waiting_attempt_checks_its_time_and_waits_on_as_long_as_time_remains(
    resolver: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiting attempt checks its time and waits on, as long as time remains."""
    monkeypatch.setattr(dns, "_LOOK_AGAIN", 0.001)
    looks = list[int]()

    def left() -> float:
        looks.append(1)
        if len(looks) == 9:
            resolver.let_go.set()
        return 0.5

    assert dns.addresses_of(_HOST, 9, left) == ["127.0.0.1"]
    assert len(looks) >= 9
