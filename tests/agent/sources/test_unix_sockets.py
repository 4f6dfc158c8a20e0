"""Unix sockets of the sources that listen."""

from __future__ import annotations

import http.client
import logging
import logging.handlers
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from fluent.sender import FluentSender

from producer.agent import AgentConfigError, Stop
from tests.agent.components import made
from tests.support.waiting import PATIENCE, eventually

from .listeners import Outlet, serving


@pytest.fixture
def path() -> Iterator[Path]:
    """Return a short path: that of a test's own directory may be too long for a socket."""
    with TemporaryDirectory(prefix="s") as folder:
        yield Path(folder) / "log"


@pytest.mark.parametrize(("name", "kind"), [("syslog_tcp", socket.SOCK_STREAM), ("syslog_udp", socket.SOCK_DGRAM)])
def test_pythons_syslog_handler_writes_to_a_unix_socket(path: Path, name: str, kind: socket.SocketKind) -> None:
    """Messages of logging.handlers.SysLogHandler over a Unix socket arrive, as over /dev/log."""
    with serving(name, bind=f"unix:{path}", client_ip_header="peer") as served:
        handler = logging.handlers.SysLogHandler(str(path), socktype=kind)
        with closing(handler):
            handler.ident = "app[7]: "
            handler.emit(logging.makeLogRecord({"msg": "grün", "levelno": logging.INFO, "levelname": "INFO"}))
            handler.emit(logging.makeLogRecord({"msg": "two", "levelno": logging.ERROR, "levelname": "ERROR"}))
            served.got("app[7]: grün".encode(), b"app[7]: two")
        headers = served.outlet.events[1][0]
        assert headers.items() >= {"Severity": "3", "Facility": "1"}.items()
        assert headers["peer"].startswith("unix" if kind == socket.SOCK_DGRAM else "uid ")
        assert served.address == (str(path), 0)
    assert not path.exists()


@pytest.mark.skipif(shutil.which("logger") is None, reason="needs logger of util-linux")
@pytest.mark.parametrize("name", ["syslog_tcp", "syslog_udp"])
def test_logger_writes_to_a_unix_socket(path: Path, name: str) -> None:
    """The program logger writes to the socket as to /dev/log: its lines have a time and a tag, and no host."""
    with serving(name, bind=f"unix:{path}") as served:
        subprocess.run(["logger", "-u", str(path), "-t", "job", "-p", "user.err", "it failed"], check=True)
        eventually(lambda: served.outlet.bodies, "a message")
        ((headers, body),) = served.outlet.events
        assert body.removeprefix(b"job: ") == b"it failed"
        assert headers["Severity"] == "3"


def test_requests_over_a_unix_socket(path: Path) -> None:
    """http serves POST over a Unix socket, with its answers."""
    with serving("http", bind=f"unix:{path}", format="lines") as served:
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(PATIENCE)
        plain.connect(str(path))
        with closing(http.client.HTTPConnection("localhost")) as client:
            client.sock = plain
            client.request("POST", "/", b"one\ntwo\n")
            assert client.getresponse().status == 200
        served.got(b"one", b"two")


def test_fluent_logger_sends_over_a_unix_socket(path: Path) -> None:
    """The client fluent-logger sends over a Unix socket."""
    with serving("forward", bind=f"unix:{path}", field="log") as served:
        sender = FluentSender("app", host=f"unix://{path}")
        assert sender.emit("x", {"log": "hello"})
        served.got(b"hello")
        sender.close()


def test_a_socket_that_a_killed_process_left_is_replaced_and_no_other_file(path: Path) -> None:
    """A socket that no process has open is replaced; one in use and any other file are refused, and are kept."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with serving("netcat", bind=f"unix:{path}", socket_mode="600") as served:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(OSError, match="it is in use"):
            made("sources", "netcat", bind=f"unix:{path}").run(Outlet(), Stop())
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(path))
            peer.sendall(b"one\n")
            assert peer.recv(9) == b"OK\n"
        served.got(b"one")
    path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        made("sources", "netcat", bind=f"unix:{path}").run(Outlet(), Stop())
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bind": "unix:log"}, "must be unix: and an absolute path"),
        ({"bind": "unix:/" + "x" * 200}, "at most 103 bytes"),
        ({"bind": "unix:/x", "socket_mode": "rw"}, "must be octal permissions"),
        ({}, "port: is missing"),
    ],
)
@pytest.mark.parametrize("name", ["netcat", "syslog_udp", "http"])
def test_an_invalid_socket_is_refused(name: str, options: dict[str, str], message: str) -> None:
    """A relative or too long path, invalid permissions, and neither port nor socket are refused."""
    with pytest.raises(AgentConfigError, match=message):
        made("sources", name, **options)
