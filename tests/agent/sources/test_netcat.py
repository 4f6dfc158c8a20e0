"""netcat and netcatudp."""

import socket

import pytest

from producer.agent.config.options import from_flume
from producer.agent.config.registry import class_of
from tests.agent.sources.listeners import all_of, serving


def test_each_line_is_acknowledged_once_it_is_committed():
    """Each line is answered with OK, and not before its batch is committed."""
    with serving("netcat") as served, served.connect() as peer:
        served.outlet.room.clear()
        peer.sendall(b"one\ntwo\r\n\n")
        peer.settimeout(0.05)
        with pytest.raises(TimeoutError):
            peer.recv(1)
        served.outlet.room.set()
        peer.settimeout(60)
        peer.shutdown(socket.SHUT_WR)
        assert all_of(peer) == b"OK\nOK\nOK\n"
        served.got(b"one", b"two", b"")


def test_without_acknowledgements_nothing_is_sent():
    """With ack_every_event = false the peer gets no answer."""
    with serving("netcat", ack_every_event=False) as served, served.connect() as peer:
        peer.sendall(b"one\n")
        served.got(b"one")
        peer.shutdown(socket.SHUT_WR)
        assert all_of(peer) == b""


def test_a_line_may_come_in_pieces_and_without_an_end():
    """Lines are joined across reads; the last one needs no line end when the connection ends."""
    with serving("netcat") as served, served.connect() as peer:
        peer.sendall(b"a\nb")
        served.got(b"a")
        peer.sendall(b"c\nd")
        served.got(b"a", b"bc")
        peer.shutdown(socket.SHUT_WR)
        assert all_of(peer) == b"OK\n" * 3
        served.got(b"a", b"bc", b"d")


@pytest.mark.parametrize("sent", [b"a\n" + b"x" * 16 + b"\nb\n", b"a\n" + b"x" * 17])
def test_a_line_that_is_too_long_ends_the_connection_with_an_answer_the_lines_before_it_are_put(sent):
    """A line that is too long ends the connection with an answer; the lines before it are put."""
    with serving("netcat", max_line_length=16) as served, served.connect() as peer:
        peer.sendall(sent)
        assert all_of(peer) == b"OK\nFAILED: Event exceeds the maximum length (16 chars, including newline)\n"
        served.got(b"a")


def test_a_line_of_just_the_length_is_taken():
    """The length limit includes the line end."""
    with serving("netcat", max_line_length=16) as served, served.connect() as peer:
        peer.sendall(b"x" * 15 + b"\n")
        served.got(b"x" * 15)


def test_a_source_that_stops_ends_its_connections():
    """Stopping the source closes its connections; lines that no channel took are not acknowledged."""
    with serving("netcat") as served:
        waiting, idle = served.connect(), served.connect()
        served.outlet.room.clear()
        waiting.sendall(b"a\n")
        while not served.outlet.waiting:
            pass
    with waiting, idle:
        assert (all_of(waiting), all_of(idle)) == (b"", b"")


def test_flumes_netcat_options_are_accepted_by_default_the_source_listens_on_the_loopback_address():
    """Flume's netcat options are accepted; by default the source listens on the loopback address."""
    texts = {
        "bind": "0.0.0.0",
        "port": "44444",
        "max-line-length": "512",
        "ack-every-event": "false",
        "encoding": "utf-8",
    }
    options = class_of("sources", "netcat").Options
    made = options(**{k: v for k, v in from_flume(options, texts).items() if k in ("bind",)}, port=1)
    assert made.bind == "0.0.0.0"
    assert options(port=1).bind == "127.0.0.1"
    assert set(from_flume(options, texts)) == {"bind", "port", "max_line_length", "ack_every_event"}


def test_datagrams_are_events():
    """Each datagram is an event without its line end; its sender's address can be a header."""
    with (
        serving("netcatudp", remote_address_header="from") as served,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        for each in (b"a\n", b"b\nc", b"", b"d"):
            peer.sendto(each, served.address)
        served.got(b"a", b"b\nc", b"", b"d")
        assert {headers["from"] for headers, _ in served.outlet.events} == {"127.0.0.1"}


@pytest.mark.parametrize(("delimiter", "end"), [("\0", b"\0"), ("||", b"||"), (";", b";")])
def test_lines_may_have_another_end(delimiter: str, end: bytes) -> None:
    """With delimiter, a line ends there, wherever its bytes are cut; line ends are part of events."""
    lines = [b"one\ntwo", b"", b"three", b"x" * (10 - len(end))]
    sent = b"".join(line + end for line in lines)
    with serving("netcat", delimiter=delimiter, max_line_length=10) as served:
        for at in range(len(sent)):
            with served.connect() as peer, peer.makefile("rb") as answers:
                peer.sendall(sent[:at])
                count = sent[:at].count(end)
                assert answers.read(3 * count) == b"OK\n" * count
                peer.sendall(sent[at:])
                assert answers.read(3 * (len(lines) - count)) == b"OK\n" * (len(lines) - count)
        with served.connect() as peer:
            peer.sendall(b"four" + end + lines[-1] + b"x" + end + b"five" + end)
            assert all_of(peer).startswith(b"OK\nFAILED")
        served.got(*lines * len(sent), b"four")
