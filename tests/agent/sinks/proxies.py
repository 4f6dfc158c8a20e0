"""An HTTP proxy that opens tunnels with a password, and can be stopped."""

import contextlib
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator


class Proxy:
    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._known = listener, b64encode(b"me:hidden")
        self._open: list[socket.socket] = []
        self.asked: list[bytes] = []
        self.dead = False

    def url(self, user: str = "me:hidden@") -> str:
        return f"http://{user}127.0.0.1:{self._listener.getsockname()[1]}"

    def die(self) -> None:
        """Close all tunnels, and refuse new connections."""
        self.dead = True
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            if self.dead:
                return
            head = b""
            while b"\r\n\r\n" not in head:
                head += near.recv(1 << 16)
            self.asked.append(head.partition(b"\r\n")[0])
            if b"Proxy-Authorization: Basic " + self._known not in head:
                near.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            port = int(head.split(b" ", 2)[1].rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", port)) as far:
                self._open += [near, far]
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=_hand_on, args=(far, near), daemon=True).start()
                _hand_on(near, far)


def _hand_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy() -> Iterator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Proxy(listener)
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        yield made
        made.die()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
