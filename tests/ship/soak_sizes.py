"""A million small files, and one of ten gigabytes: memory stays flat, and the bar is correct (``make soak``).

``PRODUCER_SOAK_SHARE=0.01`` uses smaller sizes. The disk needs five gigabytes, and ten.
"""

import io
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from producer import ProjectConfig
from producer.ship.files.find import Search
from producer.ship.job import ShipJob
from producer.ship.local_engine import LocalEngine
from producer.ship.report import ProgressBar, Shipment
from producer.ship.shipment import ship_search
from tests.benchmarks.server import null_server, take_counts

pytestmark = pytest.mark.timeout(4 * 3600)  # a file is a request: a million takes two hours on a loaded machine

SHARE = float(os.environ.get("PRODUCER_SOAK_SHARE", "1"))
FILES, LARGE_BYTES = int(1_000_000 * SHARE), int(10_000_000_000 * SHARE)
_LINE = b"2024-01-01T00:00:00Z INFO it was said, and nobody has answered\n"
# Maximum growth of the memory of driver and workers after the first part, bytes.
_GROWTH = 64 << 20


class Bar:
    """A progress bar that records its state with the used memory."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float, int]] = []

    def note(self, bar: ProgressBar) -> None:
        task = bar._progress.tasks[0]
        self.told.append((int(task.completed), float(task.total or 0), _memory()))

    def check(self, size: int) -> None:
        """Check that the bar never decreases or exceeds the known total, ends at 100 %, and memory is flat."""
        shipped = [each for each, _, _ in self.told]
        assert shipped == sorted(shipped)
        assert all(each <= known <= size for each, known, _ in self.told)
        assert self.told[-1][:2] == (size, size)
        first = max(memory for each, _, memory in self.told if each <= size / 4)
        assert max(memory for _, _, memory in self.told) <= first + _GROWTH


def _memory() -> int:
    """Return the memory of this process and its children, bytes."""
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    return sum(map(_resident, ["self", *itertools.chain(*children)]))


def _resident(number: str) -> int:
    try:
        return int(Path(f"/proc/{number}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # The process has ended.
        return 0


@pytest.fixture
def bar(monkeypatch: pytest.MonkeyPatch) -> Bar:
    seen, show = Bar(), ProgressBar.show

    def watched(self: ProgressBar, *arguments: Any) -> None:
        show(self, *arguments)
        seen.note(self)

    monkeypatch.setattr(ProgressBar, "show", watched)
    return seen


@contextmanager
def _shipped(path: Path) -> Iterator[tuple[Shipment, dict[str, Any]]]:
    with null_server() as port:
        project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
        job = ShipJob(project=project, logstore="l", parser="text")
        yield (
            ship_search(LocalEngine(2), Search([str(path)]), job, console=Console(file=io.StringIO())),
            take_counts(port),
        )


def test_a_million_small_files(tmp_path: Path, bar: Bar) -> None:
    """Each of a million files is read once, before and after the search has ended."""
    for number in range(FILES):
        folder = tmp_path / str(number // 1000)
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_bytes(_LINE)
    with _shipped(tmp_path) as (done, counts):
        assert (done.failure, done.figures.files, done.figures.lines) == (None, FILES, FILES)
        assert counts["raw_bytes"] > FILES * len(_LINE)
    bar.check(FILES * len(_LINE))


def test_one_large_file(tmp_path: Path, bar: Bar) -> None:
    """The ranges of a large file are shipped concurrently."""
    lines = LARGE_BYTES // len(_LINE)
    with (tmp_path / "large.log").open("wb") as file:
        for first in range(0, lines, 100_000):
            file.write(_LINE * min(100_000, lines - first))
    with _shipped(tmp_path) as (done, counts):
        assert (done.failure, done.figures.files, done.figures.lines) == (None, 1, lines)
        assert counts["raw_bytes"] > lines * len(_LINE)
    bar.check(lines * len(_LINE))
