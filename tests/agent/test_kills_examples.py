"""The examples with ``kill -9`` and reloads: no line is lost or duplicated."""

import os
import random
import signal
import threading
from pathlib import Path

import pytest

from producer.server import LogHubServer

from .killing import SOAK, TIMEOUT, Log, agent, numbers_stored, seed_for, soon
from .test_examples import moved, server

__all__ = ["server"]

#: The least lines before each kill, and the number of kills.
_LINES, _DEATHS = 300, 20 if SOAK else 2
pytestmark = pytest.mark.timeout(TIMEOUT)


def _of_access(number: int) -> bytes:
    return b'192.0.2.1 - - [10/Oct/2026:13:55:36 +0000] "GET /%09d HTTP/1.1" 200 5 "-" "curl/8"\n' % number


@pytest.mark.parametrize(
    ("name", "log", "place"),
    [
        ("nginx.toml", "var/log/nginx/access.log", ("web", "nginx-access")),
        ("archive.toml", "var/log/app/app.log", ("shop", "application")),
    ],
)
def test_an_example_loses_nothing_and_repeats_nothing_in_deaths_and_reloads(
    name: str, log: str, place: tuple[str, str], tmp_path: Path, server: LogHubServer
) -> None:
    """An agent killed while it reads and delivers, with reloads by SIGHUP, delivers each line once."""
    seed = seed_for(7)
    instants, config = random.Random(seed), tmp_path / name
    config.write_text(moved(name, tmp_path))
    with Log(tmp_path / log, seed, rotates=False, line=_of_access) as writer:
        for death in range(_DEATHS):
            with agent(config, "--monitoring", "0") as process:
                before = server.count(*place)
                soon(lambda: server.count(*place) >= before + _LINES, "some lines")
                config.write_text(
                    moved(name, tmp_path).replace('type = "loghub"', f'type = "loghub"\nretries = {death + 1}')
                )
                os.kill(process.pid, signal.SIGHUP)
                threading.Event().wait(instants.uniform(0, 0.3))  # the random instant of the kill
        wanted = writer.end()
        with agent(config, "--monitoring", "0"):
            soon(lambda: server.count(*place) >= len(wanted), "every line")
    found = numbers_stored(server, *place)
    assert found.keys() == wanted
    assert set(found.values()) == {1}
