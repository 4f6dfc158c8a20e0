"""Promises of all listening sources to all peers."""

import resource
import socket
import ssl
import threading

import pytest
import trustme

from producer.agent import AgentConfigError
from producer.agent.sources import listening
from tests.agent.components import made
from tests.agent.sources.listeners import all_of, serving
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Create a certificate of localhost, its authority, and a client's certificate."""
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    return folder


def _open(source):
    return source.source._counters.get("OpenConnectionCount")


def test_no_more_connections_than_allowed():
    """Connections beyond the limit in total, or for one address, are closed at once; open ones continue."""
    with serving("netcat", max_connections=4, max_connections_per_peer=2) as served:
        first, second = served.connect(), served.connect()
        eventually(lambda: _open(served) == 2)
        with served.connect() as third, first, second:
            assert all_of(third) == b""
            first.sendall(b"a\n")
            assert first.recv(3) == b"OK\n"
        eventually(lambda: _open(served) == 0)
        with served.connect() as again:
            again.sendall(b"b\n")
            assert again.recv(3) == b"OK\n"


def test_a_peer_has_a_line_for_each_of_its_faults(caplog):
    """A repeated fault is logged once; text from the peer does not make it a different fault."""
    with serving("netcat") as served:
        server = served.source
        for fault in ("a call of 9 bytes is too much", "a call of 10 bytes is too much", "no size: b'x'", "no size: y"):
            server.log_fault("10.0.0.1", fault)
        server.log_fault("10.0.0.2", "no size: z")
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "closing the connection of 10.0.0.1: a call of 9 bytes is too much",
        "closing the connection of 10.0.0.1: no size: b'x'",
        "closing the connection of 10.0.0.2: no size: z",
    ]


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max_connections": 1}, "it has 1 open, the limit (max_connections)"),
        (
            {"max_connections": 2},
            "it has 1 of 127.0.0.1 open, the limit for one address (max_connections_per_peer)",
        ),
    ],
)
def test_a_refusal_at_a_limit_is_logged_once_with_the_options_name(limits, why, caplog):
    """A refusal at a limit is logged once, with the option's name."""
    with serving("netcat", **limits) as served, served.connect():
        eventually(lambda: _open(served) == 1)
        for _ in range(3):
            with served.connect() as refused:
                assert all_of(refused) == b""
        eventually(lambda: "refuses" in caplog.text)
    assert [line for line in caplog.messages if "refuses" in line] == [f"source netcat: refuses connections: {why}"]


def test_connections_leave_descriptors_for_others(monkeypatch, caplog):
    """A connection that would take one of the last file descriptors is closed, with one log line; others continue."""
    with serving("netcat") as served, served.connect() as first:
        eventually(lambda: _open(served) == 1)
        with monkeypatch.context() as few:
            few.setattr(resource, "getrlimit", lambda _kind: (4, 4))
            for _ in range(2):
                with served.connect() as second:
                    assert all_of(second) == b""
        first.sendall(b"a\n")
        assert first.recv(3) == b"OK\n"
        with served.connect() as again:
            again.sendall(b"b\n")
            assert again.recv(3) == b"OK\n"
    assert [line for line in caplog.messages if "refuses" in line] == [
        (
            "source netcat: refuses connections: it has 1 open, "
            "and the process is near its limit of 4 open files (ulimit -n)"
        )
    ]


def test_a_source_takes_no_more_than_two_thirds_of_the_descriptors(monkeypatch):
    """A source takes at most two thirds of the free file descriptors, so other sources are served."""
    with serving("netcat") as served, served.connect(), served.connect():
        eventually(lambda: _open(served) == 2)
        monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1000, 1000))
        served.source._connections |= dict.fromkeys(range(600))
        try:
            assert [served.source._has_spare_descriptors(number) for number in (630, 640)] == [True, False]
        finally:
            for number in range(600):
                del served.source._connections[number]


def test_a_silent_connection_is_closed():
    """A connection that sends nothing for the time of silence is closed."""
    with serving("netcat", silence=0.05) as served, served.connect() as peer:
        peer.sendall(b"half a line")
        assert all_of(peer) == b""


def test_lines_come_over_tls(certificates):
    """With a certificate connections use TLS, and a client that verifies it is served."""
    with serving("netcat", certificate=str(certificates / "server.pem")) as served:
        context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
        with context.wrap_socket(served.connect(), server_hostname="localhost") as peer:
            peer.sendall(b"a" * 60_000 + b"\n")
            assert peer.recv(3) == b"OK\n"
    assert served.outlet.bodies == [b"a" * 60_000]


def test_clients_without_a_certificate_are_turned_away(certificates):
    """With client_authorities only clients with a certificate of these authorities are served."""
    options = {
        "certificate": str(certificates / "server.pem"),
        "client_authorities": str(certificates / "authority.pem"),
    }
    context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
    with serving("netcat", **options) as served:
        with pytest.raises(OSError), context.wrap_socket(served.connect(), server_hostname="localhost") as peer:  # noqa: PT012
            peer.sendall(b"a\n")
            if not peer.recv(3):
                raise ConnectionResetError
        context.load_cert_chain(certificates / "client.pem")
        with context.wrap_socket(served.connect(), server_hostname="localhost") as peer:
            peer.sendall(b"b\n")
            assert peer.recv(3) == b"OK\n"
    assert served.outlet.bodies == [b"b"]


def test_while_handshakes_stall_or_are_invalid_another_peer_is_served(certificates):
    """While handshakes stall or are invalid another peer is served; the stalled ones are closed in time."""
    options = {"certificate": str(certificates / "server.pem"), "handshake_timeout": 2.0}
    with serving("netcat", **options) as served:
        hanging, garbage = served.connect(), served.connect()
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
        hanging.sendall(b"\x16\x03\x01\x02\x00")
        context = ssl.create_default_context(cafile=str(certificates / "authority.pem"))
        with context.wrap_socket(served.connect(), server_hostname="localhost") as peer:
            peer.sendall(b"a\n")
            assert peer.recv(3) == b"OK\n"
        with hanging, garbage:
            all_of(garbage)
            assert all_of(hanging) == b""


def test_floods_without_line_ends_slow_bytes_and_resets_leave_others_served_and_memory_bounded():
    """Floods without line ends, slow bytes and resets leave others served, and memory bounded."""
    chunk, before = b"x" * (1 << 16), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving("netcat", max_line_length=1 << 16) as served:
        slow = [served.connect() for _ in range(20)]
        for peer in slow:
            peer.sendall(b"s")

        def flood() -> None:
            with served.connect() as peer:
                try:
                    for _ in range(200):
                        peer.sendall(chunk)
                except OSError:
                    pass  # the source closed it, as expected

        floods = [threading.Thread(target=flood) for _ in range(4)]
        for thread in floods:
            thread.start()
        with served.connect() as resetting:
            resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            resetting.sendall(b"half")
        with served.connect() as good:
            good.sendall(b"a\n")
            assert good.recv(3) == b"OK\n"
        for thread in floods:
            thread.join()
        for peer in slow:
            peer.close()
        eventually(lambda: _open(served) == 0)
    assert sorted(set(served.outlet.bodies)) in ([b"a", b"s"], [b"a", b"half", b"s"])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 << 10, f"{grown} KiB"


def test_if_no_thread_can_be_started_the_connection_is_closed_and_the_source_continues(monkeypatch, caplog):
    """If no thread can be started the connection is closed, and the source and its connections continue."""
    monkeypatch.setattr(listening, "_PAUSE_SECONDS", 0.01)
    with serving("netcat") as served, served.connect() as first:
        eventually(lambda: _open(served) == 1)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", _no_thread)
            with served.connect() as second:
                assert all_of(second) == b""
        for peer in (first, served.connect()):
            with peer:
                peer.sendall(b"a\n")
                assert peer.recv(3) == b"OK\n"
    assert "cannot serve 127.0.0.1: can't start new thread" in caplog.text


def _no_thread(_thread):
    raise RuntimeError("can't start new thread")


def test_an_address_in_use_raises_an_error_that_names_it_the_source_can_be_run_again():
    """An address in use raises an error that names it; the source can be run again."""
    with serving("netcat") as served:
        host, port = served.address
        with pytest.raises(OSError, match=f"{host}:{port}: Address already in use"):
            made("sources", "netcat", port=port).run(None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "k.pem"}, "is needed for TLS"),
        ({"port": 70000}, "from 0 to 65535"),
        ({"max_connections": 0}, "at least 1"),
    ],
)
def test_a_key_without_a_certificate_or_an_invalid_port_is_refused_as_a_configuration_error(options, message):
    """A key without a certificate, or an invalid port, is refused as a configuration error."""
    with pytest.raises(AgentConfigError, match=message):
        made("sources", "netcat", **{"port": 0} | options)
