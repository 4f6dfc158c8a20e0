from collections.abc import Iterator
from pathlib import Path

import pytest

from .following import Tail


@pytest.fixture(autouse=True)
def made_tails() -> Iterator[list[Tail]]:
    """Collect the tails that a test makes, and close them after it."""
    yield Tail.made
    while Tail.made:
        Tail.made.pop().close()


@pytest.fixture
def tail(tmp_path: Path) -> Tail:
    return Tail(tmp_path)


@pytest.fixture
def strict(tmp_path: Path) -> Tail:
    return Tail(tmp_path, file_groups={"g": str(tmp_path / "logs") + r"/a\.log"})
