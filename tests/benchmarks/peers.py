"""List the peers, decide whether they can run here, and start their client programs.

``python -m tests.benchmarks.peers`` installs all peers into ``.bench/``, unless they are there, and prints their
versions.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .installation import FOLDER, JAVA, PYTHON, NotInstalledError, install_java, install_python, locked
from .programs import START, ClientProgram, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another project's producer.

    :ivar title: the name that its users know.
    :ivar package: the name of its package in PyPI or Maven Central.
    :ivar ways: the ways of its client program.
    :ivar command: the command that starts its client program.
    :ivar address: the kind of a job's address: ``null`` for the null server, ``kafka`` for :func:`broker`.
    """

    title: str
    package: str
    ways: tuple[str, ...]
    command: tuple[str, ...]
    address: str = "null"

    @property
    def is_java(self) -> bool:
        """Whether the client runs in a Java virtual machine."""
        return self.command[0] == "java"


def _module(name: str) -> tuple[str, ...]:
    return (str(PYTHON), "-m", f"tests.benchmarks.clients.{name}")


# The Java producer's own benchmark has a heap of 2 GB, too.
_JAVA = ("java", "-Xms2g", "-Xmx2g", "-cp", f"{JAVA}/java-producer-1.jar:{JAVA}/dependency/*", "Client")

#: The peers by their names on the benchmark's command line.
PEERS: dict[str, Peer] = {
    "official": Peer(
        title="aliyun-log-producer",
        package="aliyun-log-producer",
        ways=("kept", "send"),
        command=_module("official"),
    ),
    "python_sdk": Peer(
        title="aliyun-log-python-sdk",
        package="aliyun-log-python-sdk",
        ways=("logging", "put_logs", "queued_handler"),
        command=_module("python_sdk"),
    ),
    "kafka": Peer(
        title="confluent-kafka",
        package="confluent-kafka",
        ways=("produce", "produce_bytes"),
        command=_module("kafka"),
        address="kafka",
    ),
    "java": Peer(
        title="Java producer",
        package="aliyun-log-producer",
        ways=("send",),
        command=_JAVA,
    ),
    "otlp": Peer(
        title="opentelemetry-sdk with OTLP/HTTP",
        package="opentelemetry-sdk",
        ways=("emit", "records"),
        command=_module("otlp"),
    ),
}


# Our clients without compiled modules, and the modules of their programs.
_PURE = {"pure": "ours", "encoding_pure": "encoding"}


class Client(ClientProgram):
    """A running client program: a peer's, which :func:`prepare` has installed, or one of ours, with this Python.

    :param name: a key of :data:`PEERS`; else a module in :mod:`tests.benchmarks.clients`, or ``pure`` or
        ``encoding_pure``: ``ours`` and ``encoding`` with the pure implementations.
    """

    def __init__(self, name: str) -> None:
        peer = PEERS.get(name)
        if peer is None:
            module = _PURE.get(name, name)
            command = (sys.executable, "-W", "ignore", "-m", f"tests.benchmarks.clients.{module}")
            super().__init__(command, more={"PRODUCER_PURE": "1"} if name in _PURE else {})
        else:
            super().__init__(peer.command, with_content=peer.is_java)


def address_of(name: str) -> str:
    """Return the kind of address of a client's jobs: ``null`` or ``kafka``."""
    return PEERS[name].address if name in PEERS else "null"


@contextmanager
def broker() -> Iterator[str]:
    """Yield the address of a Kafka broker, whose process ends with the block."""
    with Program(_module("kafka_broker")) as program:
        yield program.read_line(START).strip()


def prepare(names: Collection[str], log: Callable[[str], None] = print, *, folder: Path = FOLDER) -> dict[str, str]:
    """Install the requirements of these peers, unless they are installed.

    :param names: keys of :data:`PEERS`; other names need nothing.
    :param log: function that reports slow steps.
    :return: the reason for each peer that cannot run here, by its name.
    """
    reasons: dict[str, str] = {}
    with locked(folder):
        for install, java in ((install_python, False), (install_java, True)):
            wanted = [name for name in names if name in PEERS and PEERS[name].is_java is java]
            try:
                if wanted:
                    install(folder, log=log)
            except NotInstalledError as error:
                reasons |= dict.fromkeys(wanted, str(error))
    return reasons


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of these peers, which must be installed."""
    wanted = {name: PEERS[name] for name in names if name in PEERS}
    packages = [peer.package for peer in wanted.values() if not peer.is_java]
    code = "import importlib.metadata as m, json, sys; print(json.dumps({p: m.version(p) for p in sys.argv[1:]}))"
    found: dict[str, str] = {}
    if packages:
        result = subprocess.run(
            [str(PYTHON), "-c", code, *packages], check=True, capture_output=True, text=True, timeout=START
        )
        found = json.loads(result.stdout)
    return {name: _java_version(peer) if peer.is_java else found[peer.package] for name, peer in wanted.items()}


def _java_version(peer: Peer) -> str:
    jar = next((JAVA / "dependency").glob(f"{peer.package}-*.jar"))
    result = subprocess.run([peer.command[0], "-version"], check=True, capture_output=True, text=True, timeout=START)
    return f"{jar.stem.removeprefix(peer.package + '-')}, {result.stderr.splitlines()[0]}"


def main() -> int:
    reasons = prepare(PEERS)
    found = versions(name for name in PEERS if name not in reasons)
    for name, peer in PEERS.items():
        print(f"{name}: {peer.title}", found[name] if name in found else f"is left out: {reasons[name]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
