"""A channel with events in memory and spilled ones, with sinks that recognize stored batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.agent import EventBatch
from producer.server import LogHubServer
from tests.agent.components import made
from tests.agent.doubles import opened, spillable_channel
from tests.agent.sources.test_loghub import target_in

_LINES = [b"%02d %s" % (number, b"x" * 100) for number in range(20)]


@pytest.fixture
def server() -> Iterator[LogHubServer]:
    with LogHubServer(shards=1) as made_server:
        yield made_server


def _sink(kind: str, folder: Path, server: LogHubServer) -> Any:
    if kind == "loghub":
        options = {name: value for name, value in target_in(server, lanes=1).items() if name != "poll_delay"}
    elif kind == "objects":
        options = {"path": str(folder / "out"), "compression": "none"}
    else:
        options = {"directory": str(folder / "out")}
    return made("sinks", kind, folder / "state", **options)


def _stored(kind: str, folder: Path, server: LogHubServer) -> list[bytes]:
    if kind == "loghub":
        return [str(log.fields["content"]).encode() for log in server.logs("p", "l")]
    files = (path for path in (folder / "out").rglob("*") if path.is_file())
    return sorted(line for path in files for line in path.read_bytes().splitlines())


@pytest.mark.parametrize("kind", ["loghub", "file_roll", "objects"])
def test_spilled_batches_have_lower_numbers_than_batches_delivered_before_them_and_are_stored_once(
    kind: str, tmp_path: Path, server: LogHubServer
) -> None:
    """Spilled batches have lower numbers than batches delivered before them, and are stored once, also in turns."""
    with opened(spillable_channel(tmp_path, memory_bytes=600)) as channel:
        sink = _sink(kind, tmp_path, server)
        for part in (_LINES[:10], _LINES[10:]):
            for line in part:
                channel.put(EventBatch.of_lines(line + b"\n"), 0)
            numbers = set[int]()
            while (taking := channel.take(2, 1 << 20, 0)) is not None:
                numbers |= {batch.sequence or 0 for batch in taking.batches}
                sink.write(taking.batches)
                taking.commit()
            assert min(numbers) < 100 < max(numbers)  # some batches were spilled, and some were not
        sink.close()
    assert _stored(kind, tmp_path, server) == _LINES
