"""Helpers for the tests of readers."""

from collections.abc import Sequence
from typing import Any


def rows_of(reader: Any, partitions: Sequence[Any]) -> list[dict[str, Any]]:
    """Return every row of the partitions, in order."""
    return [row for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]


def messages_of(reader: Any, partitions: Sequence[Any]) -> list[str]:
    return [dict(row["contents"])["message"] for row in rows_of(reader, partitions)]
