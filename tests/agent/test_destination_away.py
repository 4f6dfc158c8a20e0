"""Sources whose events can be sent or read again, while the destination is down, full, refusing or slow."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as KafkaProducer

from producer.agent import Agent, EventBatch
from producer.agent.config import parse_toml
from producer.agent.config.registry import BUILT_IN
from producer.agent.flow import outlet, sink_runner
from producer.server import LogHubServer
from producer.server.faults import Fault, answer, cut, delay
from tests.support.kafka_clients import QUIET
from tests.support.waiting import eventually

from .components import made
from .killing import soon
from .sources.test_journald import Journal
from .sources.test_loghub import send
from .sources.test_prometheus_remote_write import packed, post, series
from .test_kafka import cluster

__all__ = ["cluster"]

#: Events of each source, of a delivery, and of a channel's capacity.
_COUNT, _PART, _ROOM = 120, 10, 30
#: The timeout of every wait, seconds.
_PATIENCE = 120.0
#: Types without input here, that lose events while a channel is full, as datagrams do, or that need a server of theirs.
_BESIDE = {"sequence", "stress", "syslog_udp", "netcatudp", "s3"}

Deliver = Callable[[Path, Any, list[bytes], threading.Event], None]


def _to(sink: str, where: Callable[[str, int], Mapping[str, Any]]) -> Deliver:
    """Deliver by one of our sinks, retried until it succeeds or the test is over."""

    def deliver(_folder: Path, address: tuple[str, int], lines: list[bytes], over: threading.Event) -> None:
        client = made("sinks", sink, **where(*address))
        left = [EventBatch.of_lines(b"".join(line + b"\n" for line in lines)).numbered(1, "origin")]
        try:
            while left and not over.is_set():
                try:
                    client.write(left)
                    left = []
                except Exception:  # noqa: BLE001  # whatever it is, it is to be sent again
                    over.wait(0.02)
        finally:
            client.close()

    return deliver


def _by_hand(ok: bytes, form: bytes = b"%s\n") -> Deliver:
    """Deliver over a connection until as many answers arrived.

    :param form: the form of a line as the protocol sends it.
    """

    def deliver(_folder: Path, address: tuple[str, int], lines: list[bytes], _over: threading.Event) -> None:
        with socket.create_connection(address, _PATIENCE) as peer:
            peer.sendall(b"".join(form % line for line in lines))
            peer.shutdown(socket.SHUT_WR)
            found = b""
            while data := peer.recv(1 << 16):
                found += data
            assert found == ok * len(lines)

    return deliver


def _append(folder: Path, _address: object, lines: list[bytes], _over: object) -> None:
    with (folder / "a.log").open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))


def _put_file(folder: Path, _address: object, lines: list[bytes], _over: object) -> None:
    (folder / ".part").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / ".part").rename(folder / lines[0].decode())


def _post_samples(_folder: Path, address: tuple[str, int], lines: list[bytes], over: threading.Event) -> None:
    numbers = (int(line[-3:]) for line in lines)
    body = packed(series(*((number, float(number)) for number in numbers), __name__="a"))
    while post(address, body).status_code != 204 and not over.is_set():
        over.wait(0.02)


#: A sender that times out would send acknowledged events again.
_PATIENT = {"request_timeout": 120.0}


def _url(host: str, port: int) -> dict[str, Any]:
    return {"endpoint": f"http://{host}:{port}/", **_PATIENT}


def _named(host: str, port: int) -> dict[str, Any]:
    return {"hostname": host, "port": port, **_PATIENT}


#: The sources by type: options, and a function that delivers lines; ``{folder}`` is the source's own folder.
_SOURCES: Mapping[str, tuple[str, Deliver]] = {
    "taildir": ('paths = ["{folder}/a.log"]', _append),
    "spooldir": ('spool_directory = "{folder}"\nsettle = 0\npoll_delay = 0.01', _put_file),
    "exec": ('command = "tail -n +1 -F {folder}/a.log"', _append),
    "journald": ('command = "{folder}/journalctl"\nfields = []', lambda *_: None),
    "loghub": ('project = "p"\nlogstore = "l"\npoll_delay = 0.01\n{target}', lambda *_: None),
    # A group of each test's own: the mock broker keeps a member that has left for another 45 s.
    "kafka": (
        'bootstrap_servers = "{cluster}"\ntopics = ["{topic}"]\ngroup_id = "{topic}"\nbatch_duration = 0.02',
        lambda *_: None,
    ),
    "netcat": ("port = 0", _by_hand(b"OK\n")),
    "syslog_tcp": ("port = 0", _by_hand(b"")),
    "gelf": ('port = 0\ntransport = "tcp"', _by_hand(b"", b'{"short_message": "%s"}\0')),
    "http": ('port = 0\nformat = "lines"\nretry_after = 0\nput_timeout = 0.05', _to("http", _url)),
    "otlp": ("port = 0\nretry_after = 0\nput_timeout = 0.05", _to("otlp", _url)),
    "prometheus_remote_write": ("port = 0\nretry_after = 0\nput_timeout = 0.05", _post_samples),
    "otlp-grpc": (
        'port = 0\ntransport = "grpc"\nretry_after = 0\nput_timeout = 0.05',
        _to("otlp", lambda host, port: {"transport": "grpc", **_url(host, port)}),
    ),
    "thrift": ("port = 0\nput_timeout = 0.05", _to("thrift", _named)),
    "avro": ("port = 0\nput_timeout = 0.05", _to("avro", _named)),
    "forward": (
        'port = 0\nfield = "message"',
        _to("forward", lambda host, port: {"host": host, "port": port, "timeout": 120.0}),
    ),
}
_PARTS = """
[sources.{kind}]
type = "{type}"
channels = ["{kind}"]
{options}

[channels.{kind}]
type = "memory"
capacity = {room}
keep_alive = 0.05

[sinks.{kind}]
type = "loghub"
channel = "{kind}"
project = "p"
logstore = "{kind}"
{target}
lanes = 1
retries = 0
"""
_LINES = [b"<13>%03d" % number for number in range(_COUNT)]


def test_every_source_that_can_wait_is_among_them() -> None:
    """All built-in sources take part, with listed exceptions."""
    assert BUILT_IN["sources"].keys() - {_type_of(kind) for kind in _SOURCES} == _BESIDE


def _type_of(kind: str) -> str:
    return kind.partition("-")[0]


class _World:
    """An agent with a source of each type, and their input."""

    def __init__(self, folder: Path, server: LogHubServer, cluster: str) -> None:
        self._folder, self._server, self._cluster = folder, server, cluster
        self._full: set[str] = set()
        self._over = threading.Event()
        target = {"endpoint": server.endpoint, "access_key_id": server.access_key_id}
        target |= {"access_key_secret": server.access_key_secret}
        told = "\n".join(f"{name} = {json.dumps(value)}" for name, value in target.items())
        given = {"target": told, "cluster": cluster, "topic": folder.name, "room": _ROOM}
        text = f'[agent]\nstate = "{folder}/state"\n'
        for kind, (options, _) in _SOURCES.items():
            (folder / kind).mkdir()
            options = options.format(folder=folder / kind, **given)  # noqa: PLW2901  # theirs
            text += _PARTS.format(kind=kind, type=_type_of(kind), options=options, **given)
        self._fill()
        self.agent = Agent(parse_toml(text))

    def _fill(self) -> None:
        Journal(self._folder / "journald").say(*(line.decode() for line in _LINES))
        send(self._server, *({"content": line.decode()} for line in _LINES))
        client = KafkaProducer({"bootstrap.servers": self._cluster, "partitioner": "consistent"}, **QUIET)
        for line in _LINES:
            client.produce(self._folder.name, line)
        assert client.flush(20) == 0

    @contextmanager
    def giving(self) -> Iterator[None]:
        """Feed the listening sources, each on a thread that its source may block.

        The threads end with the test, even after a failure.
        """
        threads = [threading.Thread(target=self._give, args=(kind,), daemon=True) for kind in _SOURCES]
        self.agent.start()
        for thread in threads:
            thread.start()
        try:
            yield
        except BaseException:
            self._over.set()
            raise
        finally:
            self._server.faults.clear()
            end = time.monotonic() + _PATIENCE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
            self._over.set()
            assert self.agent.stop(_PATIENCE)
            assert not any(thread.is_alive() for thread in threads)

    def _give(self, kind: str) -> None:
        eventually(lambda: kind in self.agent._reading, kind, _PATIENCE)
        source: Any = self.agent._reading[kind]
        address = None
        if hasattr(source, "addresses"):
            assert source.listening.wait(_PATIENCE)
            address = source.addresses[0]
        for start in range(0, _COUNT, _PART):
            _SOURCES[kind][1](self._folder / kind, address, _LINES[start : start + _PART], self._over)

    def held_up(self) -> bool:
        """Return True if each channel has been full."""
        self._full |= {kind for kind in _SOURCES if self._is_full(kind)}
        return self._full == _SOURCES.keys()

    def _is_full(self, kind: str) -> bool:
        """Return True if the channel is full. Data read at once is one batch, which may wait for the room of a single
        event.
        """
        refused = self.agent.health_of(f"sources.{kind}").counters.get("ChannelWriteFail")
        return self.agent.channels[kind].held > _ROOM - _PART or refused > 0

    def arrived(self, kind: str) -> list[int]:
        return [int(str(log.fields["content"])[-3:]) for log in self._server.logs("p", kind)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses before retries."""
    for module in (outlet, sink_runner):
        monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.2)


@pytest.mark.parametrize(
    "fault",
    [cut("before_body"), answer(403, "WriteQuotaExceed"), answer(401, "Unauthorized"), delay(2.0)],
    ids=["down", "full", "refusing", "slow"],
)
def test_sources_wait_and_lose_nothing(fault: Fault, tmp_path: Path, cluster: str) -> None:
    """Each source fills its channel, and once the destination works, all events arrive in order, each once."""
    with LogHubServer(shards=1) as server:
        world = _World(tmp_path, server, cluster)
        server.faults.add(fault, operation="PutLogs")
        with world.giving():
            soon(world.held_up, "full channels")
            server.faults.clear()
            for kind in _SOURCES:
                soon(lambda: server.count("p", kind) >= _COUNT, f"all events of {kind}")
        for kind in _SOURCES:
            assert world.arrived(kind) == list(range(_COUNT)), kind
