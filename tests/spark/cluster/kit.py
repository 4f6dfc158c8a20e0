"""Digests of a server's logs, to compare with those of a job's rows; and the SDK as a file."""

import hashlib
import shutil
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from producer.server import LogHubServer
from producer.server.store.log_groups import parse_group
from producer.ship.session import package_zip
from tests.spark.conftest import LOGSTORE, PROJECT

from .weblog import MODULUS, SEPARATOR


@dataclass(frozen=True, slots=True)
class Held:
    digest: tuple[int, int]
    duplicates: int


def sdk_zip(folder: Path) -> Path:
    return Path(shutil.copy(package_zip(), folder / "sdk.zip"))


def held(server: LogHubServer, logstore: str = LOGSTORE) -> Held:
    """Digest the logs of a logstore of the test project. A million logs of 235 bytes take some ten seconds."""
    rows = array("Q", (row for raw in _raw_groups(server, logstore) for row in _digests(raw)))
    different = set(rows)
    return Held((len(different), sum(different) % MODULUS), len(rows) - len(different))


def _raw_groups(server: LogHubServer, logstore: str) -> Iterator[bytes]:
    # LogHubServer.log_groups would decode all of them at once.
    return (group.raw for group in server.iter_log_groups(PROJECT, logstore))


def _digests(raw: bytes) -> Iterator[int]:
    for log in parse_group(raw).Logs:
        fields = [content.Key.encode() + b"=" + content.Value for content in log.Contents]
        row = hashlib.md5(SEPARATOR.encode().join(sorted(fields)), usedforsecurity=False).digest()
        yield int.from_bytes(row[:8])
