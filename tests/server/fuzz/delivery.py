"""Delivery of a case over a socket, and reading of its answers."""

import contextlib
import json
import random
import socket
import struct
from dataclasses import dataclass
from itertools import pairwise

from .cases import Case

#: Seconds that a client waits for the server, far beyond the server's own limits.
PATIENCE = 30.0


@dataclass
class Answer:
    status: int
    code: str | None
    problem: str | None = None
    has_body: bool = True


@dataclass
class Outcome:
    """The outcome of a case: the answers, and whether the connection ended after them."""

    answers: list[Answer]
    ended: bool = True


def deliver(case: Case, port: int, dice: random.Random, held: list[socket.socket]) -> Outcome:
    """Deliver ``case``; connections not to be read or closed yet are added to ``held``."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    if case.delivery == "unread":
        held.append(connection)
        _send(connection, case.data)
        return Outcome([], ended=False)
    with contextlib.closing(connection):
        for part in _parts(case, dice):
            _send(connection, part)
        if case.delivery == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if case.delivery in ("reset", "gone"):
            return Outcome([], ended=False)
        if case.delivery != "stalled":
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        return _read(connection, [request.method for request in case.requests])


def _parts(case: Case, dice: random.Random) -> list[bytes]:
    data = case.data[: case.length]
    if case.delivery != "pieces":
        return [data]
    bounds = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.choice([1, 3, 20])))})
    return [data[start:end] for start, end in pairwise(bounds)]


def _send(connection: socket.socket, data: bytes) -> None:
    # The server may have refused and closed already.
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)


def _read(connection: socket.socket, methods: list[str]) -> Outcome:
    data = b""
    try:
        while part := connection.recv(1 << 20):
            data += part
    except ConnectionResetError:
        return Outcome(_parse(data, methods), ended=False)
    return Outcome(_parse(data, methods))


def _parse(data: bytes, methods: list[str]) -> list[Answer]:
    answers: list[Answer] = []
    while data:
        head, separator, rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        if not separator or not lines[0].startswith("HTTP/1.1 "):
            answers.append(Answer(0, None, f"no answer: {data[:200]!r}"))
            return answers
        status = int(lines[0].split(" ")[1])
        if status == 100:
            data = rest
            continue
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        method = methods[len(answers)] if len(answers) < len(methods) else "GET"
        # A request cut in its head may or may not be a HEAD.
        has_body = method != "HEAD" or rest.startswith(b'{"errorCode"')
        size = int(headers.get("content-length", "0")) if has_body else 0
        answers.append(_check(status, headers, rest[:size], complete=len(rest) >= size, has_body=has_body))
        data = rest[size:]
    return answers


def _check(status: int, headers: dict[str, str], body: bytes, *, complete: bool, has_body: bool) -> Answer:
    if not headers.get("x-log-requestid"):
        return Answer(status, None, "no x-log-requestid")
    if not complete:
        return Answer(status, None, f"the body ends after {len(body)} bytes")
    if status < 400 or not has_body:
        return Answer(status, None, has_body=has_body)
    try:
        content = json.loads(body)
    except ValueError:
        return Answer(status, None, f"an error that is no JSON: {body[:200]!r}")
    problem = None if set(content) == {"errorCode", "errorMessage"} else f"another form of error: {body[:200]!r}"
    return Answer(status, content.get("errorCode"), problem)
