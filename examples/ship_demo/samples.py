"""Generate access logs for a machine that has no logs of its own."""

from __future__ import annotations

import gzip
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

_PATHS = ("/", "/index.html", "/api/orders?page=2", "/static/app.js", "/login", "/caf%C3%A9")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "kube-probe/1.30", 'odd \\"quoted\\" agent')
_STATUSES = (200, 200, 200, 200, 304, 404, 500)


def write_access_logs(folder: Path, *, lines: int = 20_000, seed: int = 7) -> None:
    """Write ``access.log`` and ``access.log.1.gz``; the same seed writes the same files.

    :param folder: the folder to write to.
    :param lines: number of lines in each file.
    :param seed: seed of the random numbers.
    """
    numbers = random.Random(seed)
    (folder / "access.log").write_bytes(_access_log(numbers, lines))
    (folder / "access.log.1.gz").write_bytes(gzip.compress(_access_log(numbers, lines)))


def _access_log(numbers: random.Random, lines: int) -> bytes:
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    return "".join(_line(numbers, begin + timedelta(milliseconds=137 * index)) for index in range(lines)).encode()


def _line(numbers: random.Random, time: datetime) -> str:
    address = f"192.0.2.{numbers.randrange(256)}"
    size = numbers.randrange(100, 50_000)
    return (
        f'{address} - - [{time:%d/%b/%Y:%H:%M:%S +0000}] "GET {numbers.choice(_PATHS)} HTTP/1.1" '
        f'{numbers.choice(_STATUSES)} {size} "-" "{numbers.choice(_AGENTS)}"\n'
    )
