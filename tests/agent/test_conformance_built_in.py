"""The conformance tests for the built-in sources and sinks without a module of their own."""

import ast
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient

from producer.agent.config.registry import BUILT_IN
from producer.agent.events.interfaces import Sink, Source
from producer.agent.sinks.file_roll import FileRollSink
from producer.agent.sinks.http import HttpSink
from producer.agent.testing import SinkConformance, SourceConformance
from producer.cli import main
from producer.server import LogHubServer
from tests.support.kafka_clients import QUIET, QUIET_ADMIN
from tests.support.waiting import PATIENCE, eventually

from .components import made
from .network_conformance import ListeningSourceConformance, ReceivedSinkConformance
from .sources.test_journald import Journal
from .sources.test_loghub import send, target_in

#: Types that cannot conform, and the reasons.
_BESIDE = {
    "sources": {"sequence": "makes its own events", "stress": "likewise"},
    "sinks": {"logger": "delivers nothing that can be asked for", "null": "likewise"},
}


def test_every_built_in_source_and_sink_is_held_to_the_rules() -> None:
    """Each built-in type has its conformance class below ``tests/agent``, with listed exceptions."""
    found: dict[str, set[str]] = {"sources": set(), "sinks": set()}
    for path in Path(__file__).parent.rglob("test_*.py"):
        for kind, words in _held(ast.parse(path.read_text())):
            found[kind] |= {name for name, (_, cls) in BUILT_IN[kind].items() if name in words or cls in words}
    for kind, types in found.items():
        assert BUILT_IN[kind].keys() - types == _BESIDE[kind].keys()


def _held(module: ast.Module) -> Iterator[tuple[str, set[object]]]:
    """Yield the kind of each conformance class of a module, and the names that it uses."""
    kinds: dict[str, str] = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            for base in (each.id for each in node.bases if isinstance(each, ast.Name)):
                ends = (kind for kind in ("sources", "sinks") if base.endswith(f"{kind[:-1].title()}Conformance"))
                if (kind := kinds.get(base, next(ends, None))) is not None:
                    kinds[node.name] = kind
                    words = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
                    yield kind, words | {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


class TestTaildir(SourceConformance):
    def make(self) -> Source:
        self._file.touch()
        return made("sources", "taildir", self.context.state, paths=[str(self._file)])  # type: ignore[no-any-return]

    @property
    def _file(self) -> Path:
        return self.context.state.with_name("a.log")

    def feed(self, number: int) -> bytes:
        with self._file.open("ab") as file:
            file.write(b"line %d\n" % number)
        return b"line %d" % number


class TestSpooldir(SourceConformance):
    def make(self) -> Source:
        self._folder.mkdir(exist_ok=True)
        given = {"spool_directory": str(self._folder), "settle": 0, "poll_delay": 0.01}
        return made("sources", "spooldir", self.context.state, **given)  # type: ignore[no-any-return]

    @property
    def _folder(self) -> Path:
        return self.context.state.with_name("spool")

    def feed(self, number: int) -> bytes:
        self._put(f"{number:03}", b"line %d\n" % number)
        return b"line %d" % number

    def garble(self) -> bool:
        self._put("garbage", b"\x1f\x8b no gzip at all")
        return True

    def _put(self, name: str, data: bytes) -> None:
        self._folder.mkdir(exist_ok=True)
        path = self._folder.with_name(f"{name}.new")
        path.write_bytes(data)
        path.rename(self._folder / name)


class TestExec(SourceConformance):
    """The lines of a command, which a restart reads from the first one."""

    resumes = False

    def make(self) -> Source:
        self._file.touch()
        return made("sources", "exec", command=f"tail -n +1 -F {self._file}")  # type: ignore[no-any-return]

    @property
    def _file(self) -> Path:
        return self.context.state.with_name("a.log")

    def feed(self, number: int) -> bytes:
        with self._file.open("ab") as file:
            file.write(b"line %d\n" % number)
        return b"line %d" % number


class TestJournald(SourceConformance):
    """Entries of a program that replaces journalctl."""

    @pytest.fixture(autouse=True)
    def _journal(self, tmp_path: Path) -> None:
        self._entries = Journal(tmp_path)

    def make(self) -> Source:
        return made("sources", "journald", self.context.state, command=str(self._entries.program))  # type: ignore[no-any-return]

    def feed(self, number: int) -> bytes:
        self._entries.say(f"entry {number}")
        return b"entry %d" % number


class TestLogHub(SourceConformance):
    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        with LogHubServer(shards=1) as self.server:
            keys = ["--access-key-id", self.server.access_key_id, "--access-key-secret", self.server.access_key_secret]
            at = ["--endpoint", self.server.endpoint, *keys]
            assert (
                main(["create", "project", "p", *at])
                == main(["create", "logstore", "l", "-p", "p", "--shards", "1", *at])
                == 0
            )
            yield

    def make(self) -> Source:
        return made("sources", "loghub", self.context.state, **target_in(self.server))  # type: ignore[no-any-return]

    def feed(self, number: int) -> bytes:
        send(self.server, {"content": f"log {number}"})
        return b"log %d" % number


class TestKafka(SourceConformance):
    """Messages of librdkafka's mock broker."""

    @pytest.fixture(autouse=True)
    def _broker(self) -> Iterator[None]:
        client = AdminClient({"test.mock.num.brokers": 1, "test.mock.broker.rtt": 0, **QUIET_ADMIN})
        brokers = client.list_topics(timeout=60).brokers
        self._servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
        self._producer = KafkaProducer({"bootstrap.servers": self._servers, "partitioner": "consistent"}, **QUIET)
        yield
        del client

    def make(self) -> Source:
        brisk = {"session.timeout.ms": "4000", "heartbeat.interval.ms": "300"}
        given = {"bootstrap_servers": self._servers, "topics": ["t"], "batch_duration": 0.05, "config": brisk}
        return made("sources", "kafka", self.context.state, **given)  # type: ignore[no-any-return]

    def feed(self, number: int) -> bytes:
        self._producer.produce("t", b"message %d" % number)
        assert self._producer.flush(PATIENCE) == 0
        return b"message %d" % number


class TestHttp(ListeningSourceConformance):
    """Requests, each acknowledged with 200."""

    source = "http", {"format": "lines", "retry_after": 0}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        def is_taken() -> bool:
            url = f"http://{address[0]}:{address[1]}/"
            return requests.post(url, data=body + b"\n", timeout=PATIENCE).status_code == 200

        eventually(is_taken)

    def garble(self) -> bool:
        eventually(lambda: self._source is not None and self._source.listening.is_set())
        with socket.create_connection(self._source.addresses[0], PATIENCE) as peer:
            peer.sendall(b"\x16\x03\x01\x02\x00 no request\r\n\r\n")
        return True


class TestNetcat(ListeningSourceConformance):
    source = "netcat", {}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        def is_taken() -> bool:
            with socket.create_connection(self._source.addresses[0], PATIENCE) as peer:
                peer.sendall(body + b"\n")
                return peer.recv(10) == b"OK\n"

        eventually(is_taken)


class _Unanswered(ListeningSourceConformance):
    """A protocol without acknowledgements, whose client sends missing events again."""

    def acknowledged(self) -> None:  # type: ignore[override]
        return None

    def feed(self, number: int) -> bytes:
        body = b"event %d" % number
        for _ in range(10):
            super().feed(number)
            with suppress(AssertionError):
                eventually(lambda: body in self._outlet.bodies, patience=2)
                break
        return body


class TestSyslogTcp(_Unanswered):
    source = "syslog_tcp", {}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with socket.create_connection(address, PATIENCE) as peer:
            peer.sendall(b"<13>Oct 11 22:14:15 h " + body + b"\n")

    def garble(self) -> bool:
        eventually(lambda: self._source is not None and self._source.listening.is_set())
        with socket.create_connection(self._source.addresses[0], PATIENCE) as peer:
            peer.sendall(b"999999999999999999 x")
        return True


class TestGelf(ListeningSourceConformance):
    source = "gelf", {"transport": "http", "put_timeout": 0.05}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        def is_taken() -> bool:
            url, message = f"http://{address[0]}:{address[1]}/gelf", {"short_message": body.decode()}
            return requests.post(url, json=message, timeout=PATIENCE).status_code == 202

        eventually(is_taken)

    def garble(self) -> bool:
        eventually(lambda: self._source is not None and self._source.listening.is_set())
        url = "http://{}:{}/gelf".format(*self._source.addresses[0])
        assert requests.post(url, data=b"no JSON", timeout=PATIENCE).status_code == 400
        return True


class TestGelfTcp(_Unanswered):
    source = "gelf", {"transport": "tcp"}

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with socket.create_connection(address, PATIENCE) as peer:
            peer.sendall(b'{"short_message": "%s"}\0' % body)


class _Datagrams(_Unanswered):
    head = b""

    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.sendto(self.head + body, address)


class TestSyslogUdp(_Datagrams):
    source = "syslog_udp", {}
    head = b"<13>Oct 11 22:14:15 h "


class TestNetcatUdp(_Datagrams):
    source = "netcatudp", {}


class TestFileRoll(SinkConformance):
    def make(self) -> Sink:
        given: dict[str, Any] = {"directory": self._folder, "roll_interval": 0}
        return FileRollSink(FileRollSink.Options(**given), self.context)

    @property
    def _folder(self) -> Path:
        return self.context.state.with_name("out")

    def delivered(self) -> list[bytes]:
        files = sorted(path for path in self._folder.iterdir() if path.is_file())
        return [line for path in files for line in path.read_bytes().splitlines()]

    def break_destination(self) -> Callable[[], None]:
        away = self._folder.with_name("away")
        self._folder.rename(away)
        return lambda: away.rename(self._folder) and None


class TestHttpSink(ReceivedSinkConformance):
    receiver = "http", {"format": "lines", "put_timeout": 0, "retry_after": 0}

    def make(self) -> Sink:
        host, port = self.address
        return HttpSink(HttpSink.Options(endpoint=f"http://{host}:{port}/"), self.context)
