"""Helpers for the tests of ``producer ship``."""

import argparse
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from producer.server import LogHubServer
from producer.ship.errors import FileChangedError
from producer.ship.figures import Figures
from producer.ship.files.plan import Split
from producer.ship.job import ShipJob
from producer.ship.portions import Portion
from producer.ship.sending import PortionSender
from producer.spark.errors import DeliveryFailedError
from producer.spark.executor import leased_producer
from tests.spark.conftest import LOGSTORE, PROJECT, _own_producers, _unmeasured_processes, project_of, server

#: The fixtures shared with the tests of the connector.
__all__ = ["LOGSTORE", "PROJECT", "_own_producers", "_unmeasured_processes", "project_of", "server"]

#: Maximum wait for another process, seconds.
PATIENCE = 120.0


@pytest.fixture
def make_job(server: LogHubServer) -> Callable[..., ShipJob]:
    """Return a function that makes jobs for the server."""

    def make(*, producer: dict[str, object] | None = None, **options: object) -> ShipJob:
        given = {"linger_ms": 100, "base_retry_backoff_ms": 10, **(producer or {})}
        texts = {name: str(value) for name, value in given.items()}
        chosen = {"file_offset": True, **options}
        return ShipJob(project=project_of(server), logstore=LOGSTORE, producer=texts, **chosen)  # type: ignore[arg-type]

    return make


def ship_splits(splits: Iterable[Split], job: ShipJob) -> Figures:
    """Ship one portion in this process, as a task does; raise its error."""
    with leased_producer(job.project, config=job.config) as producer:
        figures = PortionSender(producer, job).ship(Portion(tuple(splits)))[0]
    if figures.lost:
        raise FileChangedError(figures.lost[0])
    if figures.failed:
        raise DeliveryFailedError(figures.failed[0])
    return figures


def held(server: LogHubServer) -> list[dict[str, str]]:
    """Return the fields and tags of every log on the server, by file and offset."""
    logs = [
        dict(log.contents) | {f"__tag__:{name}": value for name, value in log.tags.items()}
        for log in server.logs(PROJECT, LOGSTORE)
    ]
    return sorted(
        logs, key=lambda log: (log["__tag__:__path__"], int(log["__file_offset__"]), int(log.get("line_part", 0)))
    )


def contents(server: LogHubServer, path: Path | str | None = None) -> list[str]:
    """Return the lines on the server, of one file or of all."""
    return [log["content"] for log in held(server) if path is None or log["__tag__:__path__"] == str(path)]


def write_logs(folder: Path, lines: int = 3000) -> None:
    """Write files of every kind that the job reads."""
    (folder / "sub").mkdir()
    (folder / "json.log").write_text("".join(json.dumps({"n": number, "k": "é"}) + "\n" for number in range(lines)))
    (folder / "sub" / "crlf.log").write_bytes(b"".join(b"line %d\r\n" % number for number in range(lines)))
    (folder / "sub" / "old.log.gz").write_bytes(gzip.compress(b"".join(b"old %d\n" % n for n in range(lines))))
    (folder / "odd.log").write_bytes(b"\xff\xfe not text\n\n\r\n\rlone\n" + b"x" * (1 << 20) + b"\nno end")
    (folder / "empty.log").write_bytes(b"")


def ship_arguments(server: LogHubServer, *arguments: object) -> list[str]:
    """Return the arguments of ``producer ship`` into the server."""
    return [
        *map(str, arguments),
        f"--endpoint={server.endpoint}",
        f"--project={PROJECT}",
        f"--logstore={LOGSTORE}",
        f"--access-key-id={server.access_key_id}",
        f"--access-key-secret={server.access_key_secret}",
        "--producer-option=linger_ms=100",
        "--file-offset",
    ]


def parse_ship(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments of ``producer ship``."""
    from producer.cli.ship import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def start_ship(*arguments: str) -> subprocess.Popen[str]:
    """Start ``producer ship`` in its own process, on one core."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    command = [sys.executable, "-m", "producer", "ship", *arguments, "--master=local[1,4]"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for a condition while the process lives that should fulfil it."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def append(path: Path, text: str) -> None:
    with path.open("a", newline="") as file:
        file.write(text)
