"""The head of a response means the same as to ``http.client``, which uses an e-mail parser."""

from __future__ import annotations

import gzip
import http.client
import socket
from typing import Any

import pytest

from producer.sinks.http.answers import receive

HEADS = {
    "ordinary": b"HTTP/1.1 200 OK\r\nx-log-requestid: 5f\r\nContent-Length: 3\r\n\r\nabc",
    "no body": b"HTTP/1.1 204 No Content\r\nx-log-requestid: 5f\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na",
    "lines without CR": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 1\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "up to the end": b"HTTP/1.1 200 OK\r\nDate: Sun\r\n\r\nall of it",
    "closed by the server": b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
    "kept open": b"HTTP/1.1 200 OK\r\nDate: Sun\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nab",
    "kept open and closed": b"HTTP/1.1 200 OK\r\nConnection: keep-alive, close\r\nContent-Length: 2\r\n\r\nab",
    "another length in a value": b"HTTP/1.1 200 OK\r\nx: content-length: 3\r\nContent-Length: 2\r\n\r\nab",
    "a line that is no header": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nwhat\r\nDate: a\r\n\r\nab",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.0 kept": b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nab",
    "continued first": b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
    "names in any case": b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 1\r\nX-Log-RequestId: 5f\r\n\r\na",
    "spaces": b"HTTP/1.1 200 OK\r\nContent-Length:  2\r\nx-log-requestid:a\r\n\r\nab",
    "beyond ASCII": b"HTTP/1.1 200 \xe9\r\nx-log-requestid: \xe9\r\nContent-Length: 0\r\n\r\n",
    "nothing": b"HTTP/1.1 200 OK\r\n\r\n",
    "a carriage return alone": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\r\n\r\na",
    "another protocol": b"HTTP/2 200 OK\r\n\r\n",
    "no HTTP": b"SSH-2.0-OpenSSH\r\n\r\n",
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
    "no answer": b"",
    "a long line": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 101 + b"\r\n",
}

# http.client reads these differently.
ODD = {
    "a line that goes on": b"HTTP/1.1 200 OK\r\nDate: a\r\n b\r\nContent-Length: 2\r\n\r\nab",
    "cut behind its status": b"HTTP/1.1 200 OK",
    "cut within its head": b"HTTP/1.1 200 OK\r\nx-log-requestid: 5f\r\nContent-Length: 0\r\n",
    "cut within an interim one": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n",
    "a space behind a name": b"HTTP/1.1 200 OK\r\nConnection : close\r\nContent-Length: 2\r\n\r\nab",
}


# http.client accepts these, but would wrongly wait for the end of the connection, or use one of two lengths.
REFUSED = {
    "an invalid length": b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nab",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
    "repeated": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\nx-log-requestid: a\r\n\r\nab",
    "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
}
_NAMES = "content-length", "x-log-requestid", "connection", "date"


def _as_http_client_reads(sent: bytes) -> object:
    """Return the response as http.client reads it; the class of the error if it refuses it."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(sent)
        there.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(here, method="POST")
        try:
            answer.begin()
            file = answer.fp  # read the bytes behind the response
            answer.fp.close = lambda: None
            headers = [answer.headers.get_all(name, []) for name in _NAMES]
            body = answer.read()
            return answer.status, headers, body, answer.will_close or bool(file.peek(1))
        except (http.client.HTTPException, ValueError) as error:
            return type(error)
        finally:
            answer.close()


@pytest.mark.parametrize("head", HEADS)
def test_an_answer_is_read_as_http_client_reads_it(head: str) -> None:
    """Status, headers, body and end are the same, or the error is."""
    pieces = [HEADS[head][at : at + 8000] for at in range(0, len(HEADS[head]), 8000)]
    assert _receive(pieces) == _as_http_client_reads(HEADS[head])


@pytest.mark.parametrize("head", REFUSED)
def test_a_response_with_an_unclear_end_is_an_error(head: str) -> None:
    """A response with an unclear end is an error: waiting would last until the timeout, and its rest might pass for the
    next response.
    """
    assert issubclass(_receive([REFUSED[head]]), http.client.HTTPException)


def _receive(pieces: list[bytes]) -> Any:
    """Return the response that arrives in these pieces, each sent when the one before was read."""

    class Socket:
        def recv(self, _: int) -> bytes:
            return pieces.pop(0) if pieces else b""

    try:
        received = receive(Socket(), Socket().recv(0))
    except (http.client.HTTPException, ValueError) as error:
        return type(error)
    headers = [received.headers.get_all(name) for name in _NAMES]
    return received.status, headers, received.body, received.last


@pytest.mark.parametrize("head", HEADS | ODD | REFUSED)
def test_an_answer_means_the_same_however_it_arrives(head: str) -> None:
    """A response means the same at once, cut in two anywhere, or a byte at a time."""
    sent = (HEADS | ODD | REFUSED)[head]
    pieces = [sent[at : at + 8000] for at in range(0, len(sent), 8000)]
    at_once = _receive(list(pieces))
    assert _receive([sent[:1], *(sent[at : at + 8000] for at in range(1, len(sent), 8000))]) == at_once
    if len(sent) < 1000:
        assert _receive([sent[at : at + 1] for at in range(len(sent))]) == at_once
        if len(sent) > 1:
            assert _receive([sent[:-1], sent[-1:]]) == at_once


@pytest.mark.parametrize("head", [head for head in ODD if head.startswith("cut")])
def test_a_cut_head_is_not_accepted_as_a_response(head: str) -> None:
    """``http.client`` accepts a cut head as complete: a 200 that a proxy cut off would lose a log."""
    assert _receive([ODD[head]]) is http.client.HTTPException


@pytest.mark.parametrize("head", ["ordinary", "kept open", "names in any case", "another length in a value"])
def test_an_ordinary_answer_is_read_in_one_step(head: str) -> None:
    """An ordinary response is read without a second read of the socket."""
    received = receive(None, HEADS[head])
    assert received.status == 200
    assert received.headers.get("X-Log-RequestId") in (None, "5f")


@pytest.mark.parametrize("more", [b"x", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
def test_bytes_behind_a_response_belong_neither_to_its_body_nor_to_the_next_response(more: bytes) -> None:
    """Bytes behind a response belong neither to its body nor to the next response."""
    for pieces in ([HEADS["ordinary"] + more], [HEADS["ordinary"][:30], HEADS["ordinary"][30:] + more]):
        status, _, body, last = _receive(pieces)
        assert (status, body, last) == (200, b"abc", True)


@pytest.mark.parametrize("status", [b"102 Processing", b"103 Early Hints", b"199 Whatever"])
def test_an_interim_response_is_skipped_otherwise_a_stored_log_would_be_sent_again(status: bytes) -> None:
    """An interim response is skipped: otherwise a stored log would be sent again."""
    sent = b"HTTP/1.1 " + status + b"\r\nLink: </x>\r\n\r\n" + HEADS["ordinary"]
    expected = _receive([HEADS["ordinary"]])
    assert _receive([sent]) == _receive([sent[:30], sent[30:]]) == _receive([sent, b""]) == expected


@pytest.mark.parametrize(
    ("packing", "body", "read"),
    [
        (b"GZIP", gzip.compress(b"why"), b"why"),
        (b"gzip", b"<html>", b"<html>"),
        (b"gzip", b"\x1f\x8b broken", b"\x1f\x8b broken"),
    ],
    ids=["capitals", "not packed", "broken"],
)
def test_an_answer_that_a_proxy_packed_is_an_answer(packing: bytes, body: bytes, read: bytes) -> None:
    """The status of a compressed response counts, even if its body cannot be decompressed."""
    sent = b"HTTP/1.1 503 Busy\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (packing, len(body), body)
    assert _receive([sent])[::2] == (503, read)


def test_another_protocol_is_not_waited_for() -> None:
    """After a switch to another protocol the response is over, and its connection is not used again."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
        here.settimeout(60)
        answer = receive(here, here.recv(10_000))
        assert (answer.status, answer.body, answer.last) == (101, b"", True)


@pytest.mark.parametrize("length", [b"+0", b"-1", b"0, 0", b"", b"0x1", b"9" * 5000])
def test_an_answer_of_no_length_is_none_at_once(length: bytes) -> None:
    """A response with an invalid length is refused at once, not at the timeout."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n")
        here.settimeout(60)
        with pytest.raises(http.client.HTTPException, match="Content-Length"):
            receive(here, here.recv(10_000))


def test_a_continuation_line_belongs_to_its_header_lines_after_one_without_a_colon_are_ignored() -> None:
    """A continuation line belongs to its header; lines after one without a colon are ignored."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"HTTP/1.1 200 OK\r\n folded\r\na: b\r\n\tc\r\nwhat\r\nContent-Length: 3\r\n\r\n")
        there.shutdown(socket.SHUT_WR)
        answer = receive(here, here.recv(10_000))
    assert (dict(answer.headers), answer.last) == ({"a": "b c"}, True)
