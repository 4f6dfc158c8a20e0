"""Sources that require client certificates: valid clients are served, all others are refused."""

import ssl
from pathlib import Path
from typing import Any

import msgpack
import pytest
import trustme

from tests.agent.sources.listeners import Served, serving
from tests.support.waiting import eventually

_LINE = b"<13>Oct 11 22:14:15 host app: hello\n"
_MESSAGE = msgpack.packb(["tag", [[1, {"message": "hello"}]], {"chunk": "x"}])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create certificates of the server, of a client, and of a client of another authority."""
    folder, authority, other = tmp_path_factory.mktemp("certificates"), trustme.CA(), trustme.CA()
    for name, issuer in (("localhost", authority), ("right", authority), ("wrong", other)):
        issuer.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    return folder


def _context(files: Path, own: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files / "authority.pem"))
    if own is not None:
        context.load_cert_chain(files / f"{own}.pem")
    return context


def _is_turned_away(served: Served, context: ssl.SSLContext, data: bytes) -> bool:
    """Return True if the server refuses the client; TLS 1.3 says so only after the client's handshake."""
    try:
        with context.wrap_socket(served.connect(), server_hostname="localhost") as peer:
            peer.sendall(data)
            return peer.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ("wrong", "its certificate is invalid: unable to get local issuer certificate"),
        (None, "it sent no certificate (client_authorities)"),
    ],
)
def test_a_refused_client_certificate_is_logged_once_with_the_reason_however_often_the_client_tries(
    own: str | None, why: str, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A refused client certificate is logged once with the reason, however often the client tries."""
    given = {"certificate": str(files / "localhost.pem"), "client_authorities": str(files / "authority.pem")}
    with serving("syslog_tcp", **given) as served:
        for _ in range(2):
            assert _is_turned_away(served, _context(files, own), _LINE)
        eventually(lambda: caplog.messages, "a line of it")
    assert caplog.messages == [f"source syslog_tcp: closing the connection of 127.0.0.1: {why}"]


@pytest.mark.parametrize(
    ("kind", "data", "options"),
    [
        ("syslog_tcp", _LINE, {}),
        ("forward", _MESSAGE, {"field": "message"}),
        ("gelf", b'{"version": "1.1", "host": "h", "short_message": "hello"}\0', {"transport": "tcp"}),
    ],
    ids=["syslog", "forward", "gelf"],
)
def test_clients_without_a_certificate_or_of_another_authority_are_refused(
    kind: str, data: bytes, options: dict[str, Any], files: Path
) -> None:
    """Clients without a certificate, or of another authority, are refused; a connected client continues."""
    given = {"certificate": str(files / "localhost.pem"), "client_authorities": str(files / "authority.pem")}
    with (
        serving(kind, **options, **given) as served,
        _context(files, "right").wrap_socket(served.connect(), server_hostname="localhost") as right,
    ):
        right.sendall(data)
        eventually(lambda: served.outlet.bodies, "the first event")
        heard = list(served.outlet.bodies)
        for own in (None, "wrong"):
            assert _is_turned_away(served, _context(files, own), data)
        right.sendall(data)
        served.got(*heard, *heard)
