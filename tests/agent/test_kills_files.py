"""Files that are put into a directory, and agents that are killed: one, and the two of a hop.

``PRODUCER_SOAK=1`` kills 50 times.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from producer import Producer, ProjectConfig
from producer.credentials import Credentials, StaticCredentials
from producer.server import LogHubServer
from producer.server.faults import drop_answer

from ..support.waiting import eventually
from .killing import SOAK, Spool, agent, numbers_in, seed_for

_KILLS = 50 if SOAK else 2

_SPOOL = """
[agent]
name = "{name}"
state = "{folder}/{name}"

[sources.files]
type = "spooldir"
spool_directory = "{folder}/spool"
settle = 0
poll_delay = 0.02
delete_policy = "immediate"
channels = ["disk"]

[channels.disk]
type = "file"
minimum_free_space = 0
"""
_PULL = """
[agent]
name = "{name}"
state = "{folder}/{name}"

[sources.loghub]
type = "loghub"
project = "p"
logstore = "in"
endpoint = "{server.endpoint}"
access_key_id = "{server.access_key_id}"
access_key_secret = "{server.access_key_secret}"
poll_delay = 0.02
channels = ["disk"]

[channels.disk]
type = "file"
minimum_free_space = 0
"""
_FILES = """
[sinks.files]
type = "file_roll"
channel = "disk"
directory = "{folder}/out"
roll_interval = 0.2
"""
_LOGHUB = """
[sinks.loghub]
type = "loghub"
channel = "disk"
project = "p"
logstore = "l"
endpoint = "{server.endpoint}"
access_key_id = "{server.access_key_id}"
access_key_secret = "{server.access_key_secret}"
retries = 0
"""
_HOP = """
[sinks.hop]
type = "http"
channel = "disk"
endpoint = "http://127.0.0.1:{port}/"
format = "json"
"""
_COLLECTOR = """
[agent]
name = "collector"
state = "{folder}/collector"

[sources.edges]
type = "http"
port = {port}
channels = ["disk"]

[channels.disk]
type = "file"
minimum_free_space = 0
"""
#: So many kills take longer than other tests may.
pytestmark = pytest.mark.timeout(3600 if SOAK else 300)


def _write(path: Path, text: str, **values: object) -> Path:
    path.write_text(text.format(folder=path.parent, name=path.stem, **values))
    return path


def _soon(condition: Callable[[], object], what: str) -> None:
    """As ``eventually``, for what takes time to find out."""
    eventually(lambda: threading.Event().wait(0.05) or condition(), what)


def _written(folder: Path) -> int:
    return numbers_in(folder).total() if folder.exists() else 0


def test_each_line_of_a_spool_directory_is_in_a_file(tmp_path: Path) -> None:
    """kill -9 of spooldir, file channel and file_roll: no line is lost, and none is twice."""
    seed = seed_for(3)
    chance, out = random.Random(seed), tmp_path / "out"
    config = _write(tmp_path / "a.toml", _SPOOL + _FILES)
    with Spool(tmp_path / "spool", seed) as spool:
        for _ in range(_KILLS):
            before = _written(out)
            with agent(config):
                _soon(lambda: _written(out) > before, "a delivery")  # noqa: B023  # called at once
                threading.Event().wait(chance.uniform(0, 0.3))
        with agent(config):
            wanted = spool.end()
            _soon(lambda: wanted <= numbers_in(out).keys(), "the delivery of each line")
    found = numbers_in(out)
    print(f"seed {seed}, {_KILLS} kills, {spool.files} files, {spool.count} lines")
    assert found == Counter(wanted)


def test_each_line_of_a_spool_directory_is_stored_once_in_loghub(tmp_path: Path) -> None:
    """kill -9 of spooldir, file channel and LogHub's sink, a tenth of all answers lost: no line is lost, and none is
    stored twice.
    """
    seed = seed_for(4)
    chance = random.Random(seed)

    def stored() -> Counter[bytes]:
        try:
            return Counter(dict(log.contents)["content"].split()[1].encode() for log in server.logs("p", "l"))
        except LookupError:
            return Counter()

    with LogHubServer() as server, Spool(tmp_path / "spool", seed) as spool:
        config = _write(tmp_path / "a.toml", _SPOOL + _LOGHUB, server=server)
        server.faults.add(drop_answer(), probability=0.1, seed=seed, operation="PutLogs")
        for _ in range(_KILLS):
            before = stored().total()
            with agent(config):
                _soon(lambda: stored().total() > before, "a delivery")  # noqa: B023  # called at once
                threading.Event().wait(chance.uniform(0, 0.3))
        with agent(config):
            wanted = spool.end()
            _soon(lambda: wanted <= stored().keys(), "the delivery of each line")
        found = stored()
    print(f"seed {seed}, {_KILLS} kills, {spool.files} files, {spool.count} lines")
    assert found == Counter(wanted)


def _stored(server: LogHubServer) -> Counter[bytes]:
    try:
        return Counter(dict(log.contents)["content"].encode() for log in server.logs("p", "l"))
    except LookupError:
        return Counter()


def test_each_log_that_is_pulled_is_stored_once(tmp_path: Path) -> None:
    """kill -9 between two logstores, a tenth of all answers lost: no log is lost, and none is stored twice."""
    seed = seed_for(6)
    chance, count = random.Random(seed), 0
    with LogHubServer() as server:
        config = _write(tmp_path / "a.toml", _PULL + _LOGHUB, server=server)
        key = Credentials(access_key_id=server.access_key_id, access_key_secret=server.access_key_secret)
        account = ProjectConfig("p", endpoint=server.endpoint, credentials=StaticCredentials(credentials=key))
        with Producer(account) as producer:
            for _ in range(_KILLS // 2):
                before = _stored(server).total()
                for _ in range(10):
                    producer.stream("p", "in").send_many([{"content": str(count + n)} for n in range(100)])
                    producer.flush(timeout=20)
                    count += 100
                server.faults.add(drop_answer(), probability=0.1, seed=seed, operation="PutLogs")
                with agent(config):
                    _soon(lambda: _stored(server).total() > before, "a delivery")  # noqa: B023  # called at once
                    threading.Event().wait(chance.uniform(0, 0.3))
                server.faults.clear()
            with agent(config):
                _soon(lambda: len(_stored(server)) == count, "the delivery of each log")
        found = _stored(server)
    print(f"seed {seed}, {_KILLS // 2} kills, {count} logs")
    assert found == Counter(b"%d" % number for number in range(count))


def test_a_hop_loses_nothing_when_either_end_is_killed(tmp_path: Path) -> None:
    """Two agents, one behind the other, each killed while the other one lives: every line arrives, at least once."""
    seed = seed_for(5)
    chance, out = random.Random(seed), tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configs = {
        "edge": _write(tmp_path / "edge.toml", _SPOOL + _HOP, port=port),
        "collector": _write(tmp_path / "collector.toml", _COLLECTOR + _FILES, port=port),
    }
    with Spool(tmp_path / "spool", seed) as spool, ExitStack() as alive:
        ends = {name: alive.enter_context(ExitStack()) for name in configs}
        for name, end in ends.items():
            end.enter_context(agent(configs[name]))
        for number in range(_KILLS):
            before = _written(out)
            _soon(lambda: _written(out) > before, "a delivery")  # noqa: B023  # called at once
            threading.Event().wait(chance.uniform(0, 0.3))
            killed = ("edge", "collector")[number % 2]
            ends[killed].close()
            ends[killed].enter_context(agent(configs[killed]))
        wanted = spool.end()
        _soon(lambda: wanted <= numbers_in(out).keys(), "the delivery of each line")
    found = numbers_in(out)
    twice = sum(count > 1 for count in found.values())
    print(f"seed {seed}, {_KILLS} kills, {spool.files} files, {spool.count} lines, {twice} more than once")
    assert found.keys() == wanted
