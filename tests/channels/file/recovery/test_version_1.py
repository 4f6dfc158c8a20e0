"""Version 1: read a directory of the earlier format, byte for byte."""

import shutil
from pathlib import Path

import pytest

from producer.channels import FileChannel
from producer.channels.file.recovery.inspection import examine
from producer.channels.file.store.format import VERSION, decode_segment_header
from tests.channels.helpers import drained, put

LEFT = Path(__file__).with_name("version_1")
EVENTS = ["three", "four", "x" * 900, "five", "six"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LEFT, tmp_path / "channel"))


def versions(directory: Path) -> list[int]:
    headers = [decode_segment_header(path.read_bytes()) for path in sorted(directory.glob("log-*"))]
    return [header.version for header in headers if header is not None]


@pytest.mark.parametrize("checkpoint", [True, False], ids=["with its checkpoint", "without"])
def test_events_of_version_1_are_delivered_in_order_and_new_segments_have_the_current_version(
    directory: Path, checkpoint: bool
) -> None:
    """Events of version 1 are delivered in order, and new segments have the current version."""
    before = {path.name: path.read_bytes() for path in directory.glob("log-*")}
    assert versions(directory) == [1, 1, 1]
    if not checkpoint:
        (directory / "checkpoint").unlink()
    with FileChannel(directory, minimum_free_space=0, reserve=0, checkpoint_interval=None) as channel:
        put(channel, "new")
        assert {name: (directory / name).read_bytes() for name in before} == before
        assert versions(directory) == [1, 1, 1, VERSION]
        assert [event.body.decode() for event in channel.peek()] == [*EVENTS, "new"]
        stats = channel.stats().file
        assert stats is not None
        assert (stats.damaged_records, stats.lost_events, stats.torn_tails) == (0, 0, 0)
    with FileChannel(directory, minimum_free_space=0, reserve=0, checkpoint_interval=None) as channel:
        assert drained(channel) == [*EVENTS, "new"]


def test_the_tools_read_it(directory: Path) -> None:
    """An inspection finds its events and no damage."""
    report = examine(str(directory))
    assert (report.events, report.damaged, report.torn) == (5, False, False)
