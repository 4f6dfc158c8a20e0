"""A real Flume agent sends to ours and receives from it, by Thrift, Avro and compressed Avro.

``make soak`` runs it, since Maven has to fetch Flume.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer.agent import Agent
from producer.agent.config import parse_toml
from tests.benchmarks.agent import free_port, install_flume
from tests.support.waiting import eventually

_COUNT = 5000
#: The protocols by name: Flume's type, Flume's compression setting, and ours.
_WAYS = {"t": ("thrift", "", ""), "a": ("avro", "", ""), "z": ("avro", "deflate", 'compression_type = "deflate"')}


@contextmanager
def _flume(folder: Path, lines: list[str]) -> Iterator[None]:
    file = folder / "flume.properties"
    file.write_text("".join(f"f.{line}\n" for line in lines))
    main = ["org.apache.flume.node.Application", "-n", "f", "-f", str(file), "--no-reload-conf"]
    with (folder / "flume.log").open("w") as log:
        process = subprocess.Popen(["java", "-Xmx256m", "-cp", f"{install_flume()}/*", *main], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


def _agent(text: str, folder: Path) -> Agent:
    agent = Agent(parse_toml(f'[agent]\nstate = "{folder}/state"\n{text}'))
    agent.start()
    return agent


def _numbers(folder: Path) -> Counter[int]:
    return Counter(int(line) for path in folder.glob("[!.]*") for line in path.read_text().splitlines())


def _packed(where: str, compression: str) -> list[str]:
    return [f"{where}.compression-type = {compression}"] if compression else []


@pytest.mark.timeout(900)  # Maven may have to fetch Flume
def test_a_real_flume_sends_to_us(tmp_path: Path) -> None:
    """Three of Flume's sinks deliver each event once, with its header, to three of our sources."""
    out = {name: tmp_path / name for name in _WAYS}
    parts = [
        f'[sources.{name}]\ntype = "{kind}"\nport = 0\n{ours}\nchannels = ["{name}"]\n'
        f'interceptors = [{{type = "regex_filter", regex = "^[0-9]+$"}}]\n[channels.{name}]\ntype = "file"\n'
        f'[sinks.{name}]\ntype = "file_roll"\nchannel = "{name}"\ndirectory = "{out[name]}"\nroll_interval = 1'
        for name, (kind, _, ours) in _WAYS.items()
    ]
    agent = _agent("\n".join(parts), tmp_path)
    try:
        for name in _WAYS:
            eventually(lambda name=name: name in agent._reading and agent._reading[name].addresses, "it listens")
        lines = ["sources = s", "channels = t a z", "sinks = t a z", "sources.s.channels = t a z"]
        lines += ["sources.s.type = exec", f"sources.s.command = seq 1 {_COUNT}"]
        for name, (kind, theirs, _) in _WAYS.items():
            port = agent._reading[name].addresses[0][1]  # type: ignore[attr-defined]
            lines += [f"channels.{name}.type = memory", f"channels.{name}.capacity = {2 * _COUNT}"]
            lines += [f"sinks.{name}.{each}" for each in (f"type = {kind}", "hostname = 127.0.0.1", f"port = {port}")]
            lines += [f"sinks.{name}.channel = {name}", *_packed(f"sinks.{name}", theirs)]
        wanted = Counter(range(1, _COUNT + 1))
        with _flume(tmp_path, lines):
            eventually(lambda: all(_numbers(each) == wanted for each in out.values()), "all events, each once", 120)
    finally:
        assert agent.stop(60)


@pytest.mark.timeout(900)
def test_a_real_flume_receives_from_us(tmp_path: Path) -> None:
    """Three of our sinks deliver each event once to three of Flume's sources."""
    out, ports = tmp_path / "out", {name: free_port() for name in _WAYS}
    out.mkdir()
    lines = ["sources = t a z", "channels = c", "sinks = k", "channels.c.type = memory", "channels.c.capacity = 100000"]
    lines += ["channels.c.transactionCapacity = 10000", "sinks.k.type = file_roll", "sinks.k.channel = c"]
    lines += [f"sinks.k.sink.directory = {out}", "sinks.k.sink.rollInterval = 0"]
    for name, (kind, theirs, _) in _WAYS.items():
        given = f"type = {kind}", "bind = 127.0.0.1", f"port = {ports[name]}", "channels = c"
        lines += [*(f"sources.{name}.{each}" for each in given), *_packed(f"sources.{name}", theirs)]
    parts = ['[sources.s]\ntype = "sequence"\nbatch_size = 100\nchannels = ["t", "a", "z"]', f"total_events = {_COUNT}"]
    parts += [
        f'[channels.{name}]\ntype = "memory"\n[sinks.{name}]\ntype = "{kind}"\nchannel = "{name}"\n'
        f'hostname = "127.0.0.1"\nport = {ports[name]}\n{ours}'
        for name, (kind, _, ours) in _WAYS.items()
    ]
    with _flume(tmp_path, lines):
        agent = _agent("\n".join(parts), tmp_path)
        try:
            wanted = Counter(dict.fromkeys(range(_COUNT), len(_WAYS)))
            eventually(lambda: _numbers(out) == wanted, "all events, each once by each way", 120)
        finally:
            assert agent.stop(60)
