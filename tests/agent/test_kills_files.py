"""Spool directories with killed agents: a single agent, and the two agents of a hop."""

import random
import socket
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from producer import Producer, ProjectConfig
from producer.model.credentials import Credentials, StaticCredentials
from producer.server import LogHubServer
from producer.server.faults import drop_answer

from .killing import KILLS, TIMEOUT, Spool, agent, deliver_with_kills, numbers_in, numbers_stored, seed_for, soon
from .sinks.log_stores import Elasticsearch, running

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
_SEARCH = """
[sinks.search]
type = "elasticsearch"
channel = "disk"
endpoint = "{url}"
index = "logs"
number_ids = true
batch_size = 100
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
pytestmark = pytest.mark.timeout(TIMEOUT)


def _write(path: Path, text: str, **values: object) -> Path:
    path.write_text(text.format(folder=path.parent, name=path.stem, **values))
    return path


def test_each_line_of_a_spool_directory_is_in_a_file(tmp_path: Path) -> None:
    """After kill -9 of spooldir, file channel and file_roll, no line is lost or duplicated."""
    seed = seed_for(3)
    config = _write(tmp_path / "a.toml", _SPOOL + _FILES)
    with Spool(tmp_path / "spool", seed) as spool:
        deliver_with_kills(config, spool, lambda: numbers_in(tmp_path / "out"), random.Random(seed))


def test_each_line_of_a_spool_directory_is_stored_once_in_loghub(tmp_path: Path) -> None:
    """After kill -9 of spooldir, file channel and LogHub sink, with lost answers, each line is stored once."""
    seed = seed_for(4)
    with LogHubServer() as server, Spool(tmp_path / "spool", seed) as spool:
        config = _write(tmp_path / "a.toml", _SPOOL + _LOGHUB, server=server)
        server.faults.add(drop_answer(), probability=0.1, seed=seed, operation="PutLogs")
        deliver_with_kills(config, spool, lambda: numbers_stored(server, "p", "l"), random.Random(seed))


def test_each_line_of_a_spool_directory_is_stored_once_in_elasticsearch(tmp_path: Path) -> None:
    """After kill -9, with lost answers and busy shards, each line is stored once in Elasticsearch with number_ids."""
    seed = seed_for(6)
    chance = random.Random(seed)
    with running(Elasticsearch()) as store, Spool(tmp_path / "spool", seed) as spool:
        store.judge = lambda _document: (429, "busy") if chance.random() < 0.002 else None
        config = _write(tmp_path / "a.toml", _SPOOL + _SEARCH, url=store.url)
        for _ in range(max(2, KILLS // 3)):
            before, store.lost = len(store.documents), 1
            with agent(config):
                soon(lambda: len(store.documents) > before, "a delivery")
                threading.Event().wait(chance.uniform(0, 0.3))
        with agent(config):
            wanted = spool.end()
            soon(lambda: len(store.documents) >= len(wanted), "the delivery of each line")
        found = Counter(line.split()[1].encode() for line in store.stored())
    print(f"seed {seed}, {spool.files} files, {spool.count} lines")
    assert found == Counter(wanted)


def test_each_log_that_is_pulled_is_stored_once(tmp_path: Path) -> None:
    """After kill -9 between two logstores, with lost answers, each log is stored once."""
    seed = seed_for(6)
    chance, count = random.Random(seed), 0
    with LogHubServer() as server:
        config = _write(tmp_path / "a.toml", _PULL + _LOGHUB, server=server)
        key = Credentials(access_key_id=server.access_key_id, access_key_secret=server.access_key_secret)
        account = ProjectConfig("p", endpoint=server.endpoint, credentials=StaticCredentials(credentials=key))
        with Producer(account) as producer:
            for _ in range(KILLS // 2):
                before = server.count("p", "l")
                for _ in range(10):
                    producer.stream("p", "in").send_many([{"content": f"{count + n:09d}"} for n in range(100)])
                    producer.flush(timeout=20)
                    count += 100
                server.faults.add(drop_answer(), probability=0.1, seed=seed, operation="PutLogs")
                with agent(config):
                    soon(lambda: server.count("p", "l") > before, "a delivery")
                    threading.Event().wait(chance.uniform(0, 0.3))
                server.faults.clear()
            with agent(config):
                soon(lambda: len(numbers_stored(server, "p", "l")) == count, "the delivery of each log")
        found = numbers_stored(server, "p", "l")
    print(f"seed {seed}, {KILLS // 2} kills, {count} logs")
    assert found == Counter(b"%09d" % number for number in range(count))


def test_a_hop_loses_nothing_when_either_end_is_killed(tmp_path: Path) -> None:
    """With two agents in a row, killed one by one or together, every line arrives at least once."""
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
        for number in range(KILLS):
            before = numbers_in(out).total()
            soon(lambda: numbers_in(out).total() > before, "a delivery")
            threading.Event().wait(chance.uniform(0, 0.3))
            killed = (("edge",), ("collector",), ("edge", "collector"))[number % 3]
            for name in killed:
                ends[name].close()
            for name in killed:
                ends[name].enter_context(agent(configs[name]))
        wanted = spool.end()
        soon(lambda: wanted <= numbers_in(out).keys(), "the delivery of each line")
    found = numbers_in(out)
    twice = sum(count > 1 for count in found.values())
    print(f"seed {seed}, {KILLS} kills, {spool.files} files, {spool.count} lines, {twice} more than once")
    assert found.keys() == wanted
