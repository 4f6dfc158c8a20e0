"""TLS files that are missing, invalid, expired or replaced: messages, and connections that continue."""

import datetime
import shutil
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from producer.agent.config import options
from producer.agent.config.options import read_options
from producer.agent.config.registry import class_of
from producer.agent.events.interfaces import SinkError
from producer.agent.protocols import tls_files
from producer.agent.protocols.tls_files import RenewedTls, WatchedFiles, end_of, load_own, validity_errors
from producer.model.errors import ConfigError
from producer.runtime.clock import SystemClock
from tests.agent.components import lines, made
from tests.agent.doubles import context as context_of
from tests.agent.sources.listeners import serving
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Path:
    """Create a certificate and its key, another key, an encrypted one, an expired certificate, and the authority."""
    for name, until in (("own", None), ("other", None), ("old", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC))):
        made_of = authority.issue_cert("localhost", not_after=until)
        made_of.cert_chain_pems[0].write_to_path(tmp_path / f"{name}.pem")
        made_of.private_key_pem.write_to_path(tmp_path / f"{name}.key")
    key = serialization.load_pem_private_key((tmp_path / "own.key").read_bytes(), None)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    locked = key.private_bytes(pem, form, serialization.BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.key").write_bytes(locked)
    (tmp_path / "broken.pem").write_text("no certificate\n")
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    return tmp_path


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        ("none.pem", "own.key", "certificate: cannot be read: No such file or directory"),
        ("own.pem", "none.key", "key: cannot be read: No such file or directory"),
        ("own.pem", "other.key", "key: does not match the certificate"),
        ("own.pem", "locked.key", "key: is encrypted, and the agent cannot ask for a passphrase"),
        ("broken.pem", "own.key", "certificate: cannot be used"),
        ("old.pem", "old.key", "certificate: is refused by peers: certificate has expired"),
    ],
)
@pytest.mark.parametrize("kind", ["sources.netcat", "sources.http", "sinks.forward", "sinks.http"])
def test_a_file_of_tls_that_is_wrong_is_named(kind: str, certificate: str, key: str, told: str, files: Path) -> None:
    """``check`` names the invalid file and the fault, without a prompt for a passphrase."""
    given: dict[str, Any] = {"certificate": str(files / certificate), "key": str(files / key)}
    given |= {
        "sources.netcat": {"port": 0},
        "sources.http": {"port": 0},
        "sinks.forward": {"host": "x", "tls": True},
        "sinks.http": {"endpoint": "https://x/"},
    }[kind]
    part, _, name = kind.partition(".")
    (error,) = read_options(class_of(part, name).Options, given, name).missing()
    assert f"{error.name}: {error.rule}".startswith(told)


def test_a_key_without_read_permission_is_named_the_error_is_simulated_since_root_may_read_all(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key without read permission is named; the error is simulated, since root may read all."""

    def refuse(path: Any, *_: Any, **__: Any) -> Any:
        if str(path).endswith("own.key"):
            raise PermissionError(13, "Permission denied", str(path))
        return open(path, "rb")  # noqa: PTH123

    monkeypatch.setattr(options, "open", refuse, raising=False)
    with pytest.raises(ConfigError, match="key: cannot be read: Permission denied"):
        load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files / "own.pem", files / "own.key")


def test_a_certificate_in_its_time_is_well(files: Path) -> None:
    """A certificate within its time has no fault; other faults are reported where it is used."""
    assert list(validity_errors(files / "own.pem", files / "own.key")) == []
    assert list(validity_errors(files / "own.pem", files / "other.key")) == []
    assert list(validity_errors(None, None)) == []


_END = datetime.datetime(2031, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)


def test_when_a_certificate_expires_is_known_also_of_one_that_has(files: Path, authority: trustme.CA) -> None:
    """A certificate's time of expiry is known, even if it has passed, in epoch seconds; None for an invalid file."""
    authority.issue_cert("x", not_after=_END).private_key_and_cert_chain_pem.write_to_path(files / "both.pem")
    assert end_of(files / "both.pem", None) == _END.timestamp()
    assert (
        end_of(files / "old.pem", files / "old.key") == datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).timestamp()
    )
    assert (end_of(None, None), end_of(files / "none.pem", None), end_of(files / "own.pem", files / "other.key")) == (
        (None,) * 3
    )


@pytest.mark.parametrize("purpose", [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
@pytest.mark.parametrize("end", [_END, datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)], ids=["well", "expired"])
def test_an_expired_certificate_for_clients_only_is_reported_too(
    end: datetime.datetime, purpose: Any, tmp_path: Path
) -> None:
    """An expired certificate for clients only is reported, too."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    begin = datetime.datetime(2019, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
    certificate = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=True).sign(key, hashes.SHA256())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = tmp_path / "both.pem"
    path.write_bytes(certificate.public_bytes(form[0]) + key.private_bytes(*form))
    assert end_of(path, None) == end.timestamp()
    assert bool(list(validity_errors(path, None))) is (end is not _END)


def test_expiry_is_found_without_tls_1_3(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expiry is found without TLS 1.3, whose handshake is shorter."""

    def older(protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    monkeypatch.setattr(tls_files, "ssl", SimpleNamespace(**vars(ssl) | {"SSLContext": older}))
    end = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert end_of(files / "old.pem", files / "old.key") == end
    assert [error.name for error in validity_errors(files / "old.pem", files / "old.key")] == ["certificate"]


@pytest.fixture
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_files, "_CHECK_SECONDS", 0.0)


def _place(files: Path, name: str, *suffixes: str) -> None:
    """Replace the files in use by renames."""
    for suffix in suffixes:
        shutil.copy(files / f"{name}{suffix}", files / "new")
        (files / "new").rename(files / f"used{suffix}")


def _serial(served: Any, files: Path) -> str:
    context = ssl.create_default_context(cafile=str(files / "authority.pem"))
    with context.wrap_socket(served.connect(), server_hostname="localhost") as peer:
        peer.sendall(b"x\n")
        assert peer.recv(3) == b"OK\n"
        return str(peer.getpeercert()["serialNumber"])  # type: ignore[index]


@pytest.mark.usefixtures("_looks_at_once")
def test_a_source_serves_a_renewed_certificate_without_a_restart(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If certificate and key are replaced one after the other, the old pair is used until the new one matches."""
    _place(files, "own", ".pem", ".key")
    with serving("netcat", certificate=str(files / "used.pem"), key=str(files / "used.key")) as served:
        first = _serial(served, files)
        _place(files, "other", ".pem")
        assert _serial(served, files) == first
        assert "keeps its current certificate: " in caplog.text
        _place(files, "other", ".key")
        assert _serial(served, files) != first
    assert f"uses the new {files / 'used.pem'}" in caplog.text
    assert caplog.text.count("keeps its current certificate") == 1


@pytest.mark.usefixtures("_looks_at_once")
def test_a_sink_connects_with_a_renewed_certificate(files: Path) -> None:
    """The next connection uses the new files; a pair that does not match is not used."""
    _place(files, "own", ".pem", ".key")
    sink = made(
        "sinks", "forward", host="x", tls=True, certificate=str(files / "used.pem"), key=str(files / "used.key")
    )
    renewed: RenewedTls = sink._tls
    first = renewed.context()
    assert renewed.context() is first
    _place(files, "other", ".pem")
    assert renewed.context() is first
    _place(files, "other", ".key")
    assert renewed.context() is not first


def test_the_files_are_checked_at_most_once_a_second_not_for_each_connection(files: Path) -> None:
    """The files are checked at most once a second, not for each connection."""
    looks = list[int]()

    class Counted(WatchedFiles):
        def _look(self) -> Any:
            looks.append(1)
            return super()._look()

    own = files / "own.pem", files / "own.key"

    class Standing(SystemClock):
        def monotonic(self) -> float:
            return 5.0

    renewed = Counted(own, Standing())
    for _ in range(100):
        assert not renewed.changed()
    assert len(looks) == 1


_EXPIRES = "CertificateExpiryTimestampSeconds"


@pytest.mark.usefixtures("_looks_at_once")
@pytest.mark.parametrize("kind", ["sources.netcat", "sources.http", "sinks.forward", "sinks.http", "sinks.otlp"])
def test_the_counter_has_the_certificates_time_of_expiry_also_after_a_renewal(
    kind: str, files: Path, authority: trustme.CA
) -> None:
    """The counter has the certificate's time of expiry, also after a renewal."""
    authority.issue_cert("localhost", not_after=_END).private_key_and_cert_chain_pem.write_to_path(files / "first.pem")
    later = _END + datetime.timedelta(days=1)
    authority.issue_cert("localhost", not_after=later).private_key_and_cert_chain_pem.write_to_path(
        files / "second.pem"
    )
    shutil.copy(files / "first.pem", files / "used.pem")
    part, _, name = kind.partition(".")
    cls, given = class_of(part, name), {"certificate": str(files / "used.pem")}
    given |= {"sinks.forward": {"host": "x", "tls": True}}.get(kind, {})
    given |= {"endpoint": "https://localhost:9/"} if name in ("http", "otlp") and part == "sinks" else {}
    given |= {"port": 0} if part == "sources" else {}
    context = context_of(files)
    component = cls(read_options(cls.Options, given, name), context)
    assert context.counters.get(_EXPIRES) == _END.timestamp()
    (files / "second.pem").rename(files / "used.pem")
    if part == "sources":
        getattr(component, "_source", component)._tls.context()
    else:
        with pytest.raises(SinkError):
            component.write([lines("a")])
        component.close()
    assert context.counters.get(_EXPIRES) == later.timestamp()


@pytest.mark.usefixtures("_looks_at_once")
@pytest.mark.parametrize("kind", ["http", "otlp"])
@pytest.mark.parametrize("renewed", ["certificate", "authorities"])
def test_after_the_servers_certificate_or_authorities_change_the_sink_is_refused(
    kind: str, renewed: str, files: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """After the server's certificate or authorities change, the sink is refused until its file is replaced."""
    stranger = trustme.CA()
    stranger.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(files / "used-certificate.pem")
    stranger.cert_pem.write_to_path(files / "used-authorities.pem")
    right = {"certificate": files / "client.pem", "authorities": files / "authority.pem"}
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(right["certificate"])
    given = {name: str(path) for name, path in right.items()} | {renewed: str(files / f"used-{renewed}.pem")}
    own = {"certificate": str(files / "own.pem"), "key": str(files / "own.key")}
    own |= {"format": "lines"} if kind == "http" else {}
    with serving(kind, client_authorities=str(files / "authority.pem"), **own) as served:
        sink = made("sinks", kind, endpoint=f"https://localhost:{served.address[1]}/", **given)
        with pytest.raises(SinkError):
            sink.write([lines("a")])
        assert served.outlet.batches == []
        right[renewed].rename(files / f"used-{renewed}.pem")
        sink.write([lines("a")])
        assert served.outlet.bodies == [b"a"]
        sink.close()
    assert f"sink {kind} uses the new " in caplog.text


@pytest.mark.usefixtures("_looks_at_once")
@pytest.mark.parametrize("kind", ["http", "otlp"])
@pytest.mark.parametrize("wrong", ["key", "certificate", "authorities"])
def test_with_invalid_new_files_the_sink_keeps_its_current_ones_also_for_new_connections(
    kind: str, wrong: str, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With invalid new files the sink keeps its current ones, also for new connections, and logs that once."""
    _place(files, "own", ".pem", ".key")
    shutil.copy(files / "authority.pem", files / "trusted.pem")
    own = {"certificate": str(files / "used.pem"), "key": str(files / "used.key")}
    places = {"key": "used.key", "certificate": "used.pem", "authorities": "trusted.pem"}
    form = {"format": "lines"} if kind == "http" else {}
    trusted, of_server = str(files / "trusted.pem"), {"client_authorities": str(files / "authority.pem"), **form}
    given = {"certificate": str(files / "own.pem"), "key": str(files / "own.key")}
    with serving(kind, **of_server, **given) as served:
        address = f"https://localhost:{served.address[1]}/"
        sink = made("sinks", kind, endpoint=address, authorities=trusted, **own)
        shutil.copy(files / {"key": "other.key"}.get(wrong, "broken.pem"), files / places[wrong])
        for _ in range(3):
            sink.write([lines("a")])
            for connection in list(served.source._connections):  # force a new connection
                connection.interrupt()
            eventually(lambda: not served.source._connections)
        assert served.outlet.bodies == [b"a"] * 3
        assert caplog.text.count(f"sink {kind} keeps its current certificate: {wrong}: ") == 1
        assert "uses the new" not in caplog.text
        shutil.copy(
            files / {"key": "own.key", "certificate": "own.pem"}.get(wrong, "authority.pem"), files / places[wrong]
        )
        sink.write([lines("a")])
        sink.close()
    assert f"sink {kind} uses the new " in caplog.text


def test_an_expired_certificate_is_logged_at_the_start_and_when_a_peer_refuses_it(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An expired certificate is logged at the start, and when a peer refuses it."""
    with serving("netcat", certificate=str(files / "old.pem"), key=str(files / "old.key")) as served:
        assert "source netcat: certificate: is refused by peers: certificate has expired" in caplog.text
        context = ssl.create_default_context(cafile=str(files / "authority.pem"))
        with pytest.raises(ssl.SSLCertVerificationError):
            context.wrap_socket(served.connect(), server_hostname="localhost")
        eventually(lambda: "refuses the server's certificate" in caplog.text)
