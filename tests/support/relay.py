"""An endpoint whose process a test kills or stops: it passes connections on to a server."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from producer.server import LogHubServer

#: A process that listens, prints its port, and passes each connection on to a port.
_RELAY = """
import socket, sys, threading
def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
listener = socket.create_server(("127.0.0.1", 0), backlog=100)
print(listener.getsockname()[1], flush=True)
while True:
    near, _ = listener.accept()
    far = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


@contextlib.contextmanager
def relay(server: LogHubServer) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a process that passes connections on to the server; yield it and its endpoint."""
    command = [sys.executable, "-c", _RELAY, str(server.port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()
