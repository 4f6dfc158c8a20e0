"""The digest of a server's logs counts every log, and shows missing, changed and duplicate ones."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from producer import Producer
from producer.server import LogHubServer
from tests.spark.conftest import LOGSTORE, PROJECT, project_of

from .environments import PACKAGE, bare_python, site_packages
from .kit import Held, held
from .weblog import MODULUS, SEPARATOR

ROWS = [{"id": str(number), "text": "é" * number} for number in range(5)]


def digest_of(rows: Iterable[dict[str, str]]) -> tuple[int, int]:
    texts = [SEPARATOR.join(f"{key}={row[key]}" for key in sorted(row)) for row in rows]
    halves = [int(hashlib.md5(text.encode()).hexdigest()[:16], 16) for text in texts]
    return len(halves), sum(halves) % MODULUS


def send(server: LogHubServer, rows: Iterable[dict[str, str]]) -> None:
    with Producer(project_of(server)) as producer:
        producer.stream(PROJECT, LOGSTORE).send_many(rows)


def test_order_does_not_count(server: LogHubServer) -> None:
    """Logs and fields in another order have the same digest."""
    send(server, [dict(reversed(row.items())) for row in reversed(ROWS)])
    assert held(server) == Held(digest_of(ROWS), 0)


def test_duplicates_are_counted_and_left_out_of_the_digest(server: LogHubServer) -> None:
    """Duplicates are counted, and left out of the digest."""
    send(server, [*ROWS, ROWS[3], ROWS[3], ROWS[0]])
    assert held(server) == Held(digest_of(ROWS), 3)


@pytest.mark.parametrize(
    "rows", [ROWS[1:], [*ROWS[:-1], {"id": "4", "text": "e"}], [*ROWS[:-1], {"id": "4", "txet": "éééé"}]]
)
def test_missing_and_changed_logs_show(server: LogHubServer, rows: list[dict[str, str]]) -> None:
    """A missing log, another value and another name change the digest."""
    send(server, rows)
    assert held(server).digest != digest_of(ROWS)


def test_environment_that_has_the_sdk_is_refused(tmp_path: Path) -> None:
    """An environment that has the SDK is refused, since it would prove nothing."""
    assert bare_python(tmp_path / "without").exists()
    packages = site_packages(tmp_path / "with")
    packages.mkdir(parents=True)
    (packages / "producer").symlink_to(PACKAGE)
    with pytest.raises(AssertionError, match="the SDK is in site-packages"):
        bare_python(tmp_path / "with")
