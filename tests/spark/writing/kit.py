"""A write of Arrow columns without Spark: the same code that runs in a task, into a real server."""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from producer.server import LogHubServer
from producer.server.limits import Limits
from producer.spark.writing.metrics import WriteMetrics
from producer.spark.writing.options import WriteOptions
from producer.spark.writing.task import write_rows

PROJECT, LOGSTORE = "p", "l"

#: What the server of these tests refuses (``PostBodyTooLarge``), and a value beyond it.
LIMITS = Limits(raw_bytes=150_000)
POISON = b"p" * 200_000


def target(server: LogHubServer) -> dict[str, str]:
    """The options that name the server; it waits and lingers no longer than a test likes."""
    return {
        "endpoint": server.endpoint,
        "project": PROJECT,
        "logstore": LOGSTORE,
        "accessKeyId": server.access_key_id,
        "accessKeySecret": server.access_key_secret,
        "linger_ms": "100",
        "base_retry_backoff_ms": "1",
        "max_retry_backoff_ms": "20",
        "ackTimeout": "30",
        "checkTarget": "false",
    }


def write(
    server: LogHubServer, batches: pa.RecordBatch | Iterable[pa.RecordBatch], run: str | None = "run", **options: str
) -> WriteMetrics:
    """Write as a task of partition 0 does."""
    if isinstance(batches, pa.RecordBatch):
        batches = [batches]
    return write_rows(batches, WriteOptions.from_mapping({**target(server), **options}), run)


def rows(count: int, start: int = 0, poisoned: Iterable[int] = (), size: int = 40) -> pa.RecordBatch:
    """Rows with their number as ``n``; the poisoned ones are refused by the server."""
    bad = set(poisoned)
    pads = [POISON if number in bad else b"x" * size for number in range(start, start + count)]
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64()), "pad": pa.array(pads, pa.binary())})


def numbers(server: LogHubServer, logstore: str = LOGSTORE) -> list[int]:
    """The field ``n`` of every log that the server holds, in the order of arrival within each shard."""
    return [int(dict(log.contents)["n"]) for log in server.logs(PROJECT, logstore)]


def twice(found: Iterable[int]) -> list[int]:
    return sorted(number for number, count in Counter(found).items() if count > 1)
