"""What the writer did, as it told in a file on the driver: a line of JSON for each write or micro-batch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from ..spark.writing.metrics import WriteMetrics, read_metrics

# A follower runs for years: a file of this size is put aside, bytes.
_MOST_BYTES = 64 << 10


class Written:
    """A file for the option ``metricsPath``, and the sum of what was told in it. It is removed with its block.

    The writer opens the file anew for each line. A file that was put aside is thus looked at once more the next time,
    when whoever had it open then has written.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="loghub-producer-metrics-"))
        self._file = self._folder / "current"
        self._aside = self._folder / "aside"
        self._before = WriteMetrics()

    @property
    def path(self) -> str:
        """The file."""
        return str(self._file)

    def total(self) -> WriteMetrics:
        """The sum so far."""
        if self._aside.exists():
            self._before += WriteMetrics.sum(read_metrics(self._aside))
            self._aside.unlink()
        total = self._before + WriteMetrics.sum(read_metrics(self._file))
        if self._file.exists() and self._file.stat().st_size > _MOST_BYTES:
            self._file.rename(self._aside)
        return total

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
