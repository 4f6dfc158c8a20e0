"""Kafka over TLS with SASL: librdkafka's mock broker with a TLS endpoint that checks a password."""

import dataclasses
import shutil
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import SinkError
from producer.agent.protocols import tls_files
from producer.agent.sinks.kafka import KafkaSink
from producer.agent.sources.kafka import KafkaSource
from producer.agent.testing import RecordingOutlet

from ..support.waiting import eventually
from .doubles import context
from .test_kafka import _running, cluster

__all__ = ["cluster"]
_HANDSHAKE = 17
_TOKEN = b"\0me\0hunter2"


class _Endpoint:
    """A TLS endpoint before a broker, which checks a password.

    It accepts PLAIN with version 0 of the handshake: the frame after the handshake is the password. The broker's own
    address in answers is replaced by the endpoint's.
    """

    def __init__(self, broker: str, tls: ssl.SSLContext) -> None:
        host, _, port = broker.partition(":")
        self._broker, self._tls = (host, int(port)), tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._own = self._listener.getsockname()
        self.address = f"127.0.0.1:{self._own[1]}"
        self.refused = self.served = self.strangers = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with (
            suppress(OSError, EOFError),
            plain,
            self._secured(plain) as client,
            socket.create_connection(self._broker) as broker,
        ):
            self._open += [client, broker]
            self._let_in(client, broker)
            threading.Thread(target=self._answer, args=(broker, client), daemon=True).start()
            while True:
                broker.sendall(_framed(_frame(client)))

    def _secured(self, plain: socket.socket) -> ssl.SSLSocket:
        try:
            return self._tls.wrap_socket(plain, server_side=True)
        except ssl.SSLError:
            self.strangers += 1
            raise

    def _let_in(self, client: socket.socket, broker: socket.socket) -> None:
        while True:
            frame = _frame(client)
            kind, _, correlation = struct.unpack_from(">hhi", frame)
            if kind == _HANDSHAKE:
                break
            broker.sendall(_framed(frame))
            client.sendall(_framed(_with_handshake(_frame(broker))))
        client.sendall(_framed(struct.pack(">ihih5s", correlation, 0, 1, 5, b"PLAIN")))
        if _frame(client) != _TOKEN:
            self.refused += 1
            raise EOFError
        client.sendall(_framed(b""))
        self.served += 1

    def _answer(self, broker: socket.socket, client: ssl.SSLSocket) -> None:
        theirs, ours = (host.encode() + struct.pack(">i", port) for host, port in (self._broker, self._own))
        with suppress(OSError, EOFError, ValueError):
            while True:
                client.sendall(_framed(_frame(broker).replace(theirs, ours)))

    def close(self) -> None:
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _with_handshake(versions: bytes) -> bytes:
    """Add the SASL handshake to the broker's list of request versions."""
    correlation, error, count = struct.unpack_from(">ihi", versions)
    if error:
        return versions
    return struct.pack(">ihi", correlation, error, count + 1) + versions[10:] + struct.pack(">hhh", _HANDSHAKE, 0, 0)


def _frame(source: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(source, 4), "big")
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create certificates for the endpoint and a client with their authority, and another authority."""
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    for name in ("127.0.0.1", "client"):
        authority.issue_cert(name).private_key_and_cert_chain_pem.write_to_path(folder / f"{name}.pem")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    other = trustme.CA()
    other.cert_pem.write_to_path(folder / "other.pem")
    other.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(folder / "stranger.pem")
    return folder


@contextmanager
def _endpoint(broker: str, files: Path) -> Iterator[_Endpoint]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files / "127.0.0.1.pem")
    tls.load_verify_locations(files / "authority.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    endpoint = _Endpoint(broker, tls)
    try:
        yield endpoint
    finally:
        endpoint.close()


def _config(files: Path, **other: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "ssl.ca.location": str(files / "authority.pem"),
        "ssl.certificate.location": str(files / "client.pem"),
        "ssl.key.location": str(files / "client.pem"),
    } | {key.replace("_", "."): value for key, value in other.items()}


def test_events_go_and_come_over_tls_with_a_password(cluster: str, files: Path, tmp_path: Path) -> None:
    """The sink's messages reach the broker, and the source reads them, both with a client's certificate."""
    given: dict[str, Any]
    with _endpoint(cluster, files) as endpoint:
        given = {"bootstrap_servers": endpoint.address}
        sink = KafkaSink(KafkaSink.Options(topic="over-tls", config=_config(files), **given), context(tmp_path))
        sink.write([EventBatch.of_bodies([b"a", b"b"])])
        sink.close()
        outlet = RecordingOutlet()
        options = KafkaSource.Options(
            topics=("over-tls",), batch_duration=0.1, config=_config(files, auto_offset_reset="earliest"), **given
        )
        end = _running(KafkaSource(options, context(tmp_path)), outlet)
        eventually(lambda: sorted(outlet.bodies) == [b"a", b"b"])
        end()
        assert endpoint.served >= 2
        assert endpoint.refused == 0


@pytest.mark.parametrize(
    "wrong", [{"sasl_password": "no"}, {"ssl_ca_location": "other.pem"}], ids=["password", "authority"]
)
def test_with_a_wrong_password_or_authority_the_batch_returns_and_no_message_has_the_password(
    wrong: dict[str, str], cluster: str, files: Path, tmp_path: Path
) -> None:
    """With a wrong password or authority the batch returns, and no message has the password."""
    wrong = {key: str(files / value) if value.endswith(".pem") else value for key, value in wrong.items()}
    config = _config(files, **wrong) | {"message.timeout.ms": "500"}
    with _endpoint(cluster, files) as endpoint:
        options = KafkaSink.Options(bootstrap_servers=endpoint.address, topic="wrong-tls", config=config)
        sink = KafkaSink(options, context(tmp_path))
        with pytest.raises(SinkError) as error:
            sink.write([EventBatch.of_bodies([b"a"])])
        sink.close()
        assert endpoint.served == 0
        assert (endpoint.refused > 0) is ("sasl_password" in wrong)
    assert "hunter2" not in f"{error.value} {options!r}"


@pytest.fixture
def used(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a client's certificate that the endpoint refuses, with its checks on every poll."""
    monkeypatch.setattr(tls_files, "_CHECK_SECONDS", 0.0)
    shutil.copy(files / "stranger.pem", tmp_path / "used.pem")
    return tmp_path / "used.pem"


def _renew(used: Path, files: Path, name: str = "client.pem") -> None:
    shutil.copy(files / name, used.with_name("new"))
    used.with_name("new").rename(used)


def test_the_sink_replaces_its_client_once_a_valid_renewed_certificate_is_there(
    cluster: str, files: Path, used: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The sink replaces its client once a valid renewed certificate is there."""
    config = _config(files, ssl_certificate_location=str(used), ssl_key_location=str(used), message_timeout_ms="500")
    with _endpoint(cluster, files) as endpoint:
        options = KafkaSink.Options(bootstrap_servers=endpoint.address, topic="renewed-sink", config=config)
        given = context(tmp_path)
        sink = KafkaSink(options, given)
        batch = EventBatch.of_bodies([b"a"])
        with pytest.raises(SinkError):
            sink.write([batch])
        assert endpoint.served == 0
        before = given.counters.get("CertificateExpiryTimestampSeconds")
        used.write_text("no certificate")
        with pytest.raises(SinkError):
            sink.write([batch])
        assert "sink c keeps its current certificate: " in caplog.text
        _renew(used, files)
        sink._options = dataclasses.replace(options, config=config | {"message.timeout.ms": "20000"})
        sink.write([batch])
        sink.close()
        assert endpoint.served > 0
    assert f"sink c uses the new {files / 'authority.pem'}, {used}" in caplog.text
    assert given.counters.get("CertificateExpiryTimestampSeconds") > 0 < before


def test_the_source_joins_its_group_with_a_renewed_certificate_and_reads_each_message_once(
    cluster: str, files: Path, used: Path, tmp_path: Path
) -> None:
    """The source joins its group with a renewed certificate, and reads each message once."""
    with _endpoint(cluster, files) as endpoint:
        options = KafkaSink.Options(bootstrap_servers=endpoint.address, topic="renewed", config=_config(files))
        sink = KafkaSink(options, context(tmp_path))
        sink.write([EventBatch.of_bodies([b"a", b"b"])])
        sink.close()
        served, outlet = endpoint.served, RecordingOutlet()
        config = _config(files, ssl_certificate_location=str(used), ssl_key_location=str(used))
        source = KafkaSource(
            KafkaSource.Options(
                bootstrap_servers=endpoint.address,
                topics=("renewed",),
                group_id="renewed",
                batch_duration=0.1,
                config=config,
            ),
            context(tmp_path, "s"),
        )
        end = _running(source, outlet)
        eventually(lambda: endpoint.strangers)
        assert (outlet.bodies, endpoint.served) == ([], served)
        _renew(used, files)
        eventually(lambda: sorted(outlet.bodies) == [b"a", b"b"])
        end()
