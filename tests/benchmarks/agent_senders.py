"""Send pre-made bytes to an agent: ``python -m tests.benchmarks.agent_senders WAY PLACE FILE TIMES``.

The file's bytes are sent so many times, over four connections where a protocol has them. Datagrams are lost when the
receiver's buffer is full, so their sender waits while the kernel holds too many.
"""

import http.client
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import grpc

_CONNECTIONS, _PAUSE = 4, 0.001
#: Datagrams between two looks at the receiver's buffer, and the bytes in it that stop the sender.
_AT_ONCE, _MOST_QUEUED = 50, 300_000
_EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_PROTOBUF = {"Content-Type": "application/x-protobuf"}
_SNAPPY = _PROTOBUF | {"Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"}


def _connected(place: str) -> socket.socket:
    """Connect to a port of loopback or to a Unix socket, once there is a listener."""
    while True:
        peer = socket.socket(socket.AF_INET if place.isdecimal() else socket.AF_UNIX)
        try:
            peer.connect(("127.0.0.1", int(place)) if place.isdecimal() else place)
            return peer
        except OSError:
            peer.close()
            time.sleep(_PAUSE)


def _stream(place: str, data: bytes, times: int) -> None:
    with _connected(place) as peer:
        for _ in range(times):
            peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 16):
            pass


def _post(path: str, headers: dict[str, str], place: str, data: bytes, times: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(place))
    connection.sock, sent = _connected(place), 0
    while sent < times:
        connection.request("POST", path, data, headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status not in (200, 204, 503):  # 503: the channel is full
            raise ValueError(f"{path} answered {answer.status}: {said!r}")
        sent += answer.status != 503


def _grpc(place: str, data: bytes, times: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{place}", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        for _ in range(times):
            channel.unary_unary(_EXPORT)(data, wait_for_ready=True)


def _queued(port: int) -> int | None:
    """Return the bytes in the receive buffer of a UDP socket; None without one."""
    sockets = (line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:])
    found = (fields[4] for fields in sockets if fields[1].endswith(f":{port:04X}"))
    return next((int(sizes.partition(":")[2], 16) for sizes in found), None)


def _datagrams(place: str, data: bytes, times: int) -> None:
    messages, port = data.strip(b"\0").split(b"\0"), int(place)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for start in [*range(0, len(messages), _AT_ONCE)] * times:
            while (queued := _queued(port)) is None or queued > _MOST_QUEUED:
                time.sleep(_PAUSE)
            for message in messages[start : start + _AT_ONCE]:
                sender.sendto(message, ("127.0.0.1", port))


_WAYS: dict[str, Callable[[str, bytes, int], None]] = {
    "stream": _stream,
    "grpc": _grpc,
    "datagrams": _datagrams,
    "otlp": partial(_post, "/v1/logs", _PROTOBUF),
    "remote_write": partial(_post, "/api/v1/write", _SNAPPY),
}


def main(way: str, place: str, file: str, count: str) -> None:
    data, times, connections = Path(file).read_bytes(), int(count), 1 if way == "datagrams" else _CONNECTIONS
    for number in range(connections):
        if share := times // connections + (number < times % connections):
            threading.Thread(target=_WAYS[way], args=(place, data, share)).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
