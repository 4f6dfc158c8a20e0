"""Write Arrow columns without Spark, by the code of a task, to a real server."""

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from producer.server import LogHubServer
from producer.server.limits import Limits
from producer.spark.writing.metrics import WriteMetrics
from producer.spark.writing.options import WriteOptions
from producer.spark.writing.task import write_rows

PROJECT, LOGSTORE = "p", "l"

#: The limit of the tests' server (``PostBodyTooLarge``), and a value beyond it.
LIMITS = Limits(raw_bytes=150_000)
POISON = b"p" * 200_000


def target(server: LogHubServer) -> dict[str, str]:
    """Return the options that name the server, with short timeouts."""
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
    """Write like a task of partition 0."""
    if isinstance(batches, pa.RecordBatch):
        batches = [batches]
    return write_rows(batches, WriteOptions.from_mapping({**target(server), **options}), run)


def rows(count: int, start: int = 0, poisoned: Iterable[int] = (), size: int = 40) -> pa.RecordBatch:
    """Return rows with their number as ``n``; the server refuses the poisoned ones."""
    bad = set(poisoned)
    pads = [POISON if number in bad else b"x" * size for number in range(start, start + count)]
    return pa.record_batch({"n": pa.array(range(start, start + count), pa.int64()), "pad": pa.array(pads, pa.binary())})


def numbers(server: LogHubServer, logstore: str = LOGSTORE) -> list[int]:
    """Return the field ``n`` of every stored log, in the order of receipt within each shard."""
    return [int(dict(log.contents)["n"]) for log in server.logs(PROJECT, logstore)]


def twice(found: Iterable[int]) -> list[int]:
    return sorted(number for number, count in Counter(found).items() if count > 1)
