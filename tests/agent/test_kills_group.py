"""Two agents in a consumer group of a logstore, killed one after the other."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest

from producer import Producer, ProducerConfig
from producer.server import LogHubServer

from ..support.waiting import eventually
from .killing import SOAK, agent, numbers_in, seed_for
from .sources.test_loghub import account_of

_KILLS = 10 if SOAK else 2
#: Seconds after which a checkpoint, saved every second, includes a log.
_SINCE = 2.5
_CONFIG = """
[agent]
name = "{name}"
state = "{folder}/state"

[sources.far]
type = "loghub"
project = "p"
logstore = "l"
endpoint = "{endpoint}"
access_key_id = "{key}"
access_key_secret = "{secret}"
group = "g"
group_timeout = 1
poll_delay = 0.05
channels = ["disk"]

[channels.disk]
type = "file"
minimum_free_space = 0

[sinks.files]
type = "file_roll"
channel = "disk"
directory = "{folder}/out"
"""
#: Seconds.
pytestmark = pytest.mark.timeout(1200 if SOAK else 300)


@contextmanager
def _sending(server: LogHubServer) -> Iterator[dict[bytes, float]]:
    """Send numbered logs until the end of the block; yield the time at which each was stored."""
    end, sent = threading.Event(), dict[bytes, float]()
    with Producer(account_of(server), config=ProducerConfig(linger_ms=1)) as producer:
        stream = producer.stream("p", "l")

        def send() -> None:
            for number in count():
                text = f"{number:09d}"
                stream.send({"content": f"line {text} x"}).result(60)
                sent[text.encode()] = time.monotonic()
                if end.wait(0.03):
                    return

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield sent
        finally:
            end.set()
            thread.join()


def test_no_log_is_lost_when_members_of_a_group_are_killed(tmp_path: Path) -> None:
    """A killed member's shards go to the other one, which reads again only logs after the last checkpoint."""
    chance = random.Random(seed_for(7))
    folders = [tmp_path / name for name in ("one", "two")]

    def found() -> Counter[bytes]:
        threading.Event().wait(0.1)  # reading the logstore is expensive
        return sum((numbers_in(folder / "out") for folder in folders), Counter())

    changes: list[float] = []
    with LogHubServer(shards=4) as server, ExitStack() as ends:
        for folder in folders:
            (folder / "out").mkdir(parents=True)
            key, secret = server.access_key_id, server.access_key_secret
            given = {"name": folder.name, "folder": folder, "endpoint": server.endpoint, "key": key, "secret": secret}
            (folder / "agent.toml").write_text(_CONFIG.format(**given))
        with _sending(server) as sent:
            eventually(lambda: sent)
            members = [ends.enter_context(ExitStack()) for _ in folders]
            for member, folder in zip(members, folders, strict=True):
                member.enter_context(agent(folder / "agent.toml"))
            for number in range(_KILLS):
                before = len(found())
                eventually(lambda: len(found()) > before + 20, "progress")
                threading.Event().wait(chance.uniform(_SINCE, _SINCE + 1.5))
                changes.append(time.monotonic())
                members[number % 2].close()
                # Logs from here on cannot be the killed member's; its shards go to the other one.
                before = set(sent)
                threading.Event().wait(1.5)
                fresh = sent.keys() - before
                eventually(lambda: fresh <= found().keys(), "logs of all shards")
                changes.append(time.monotonic())
                members[number % 2].enter_context(agent(folders[number % 2] / "agent.toml"))
        eventually(lambda: sent.keys() <= found().keys(), "each log")
        stored = found()
    twice = [sent[name] for name, times in stored.items() if times > 1]
    print(f"{_KILLS} kills, {len(sent)} logs, {len(twice)} of them twice")
    assert stored.keys() == sent.keys()
    assert all(any(0 <= change - at <= _SINCE for change in changes) for at in twice)
