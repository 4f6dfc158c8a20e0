"""Compare decoding an answer of PullLogs with the official SDK: CPU time per log.

``python -m tests.benchmarks.reading`` decodes one answer, as received, by turns. Ours makes record batches of all
fields, of two fields, and of the default schema, as ``spark.read`` does in a task. The SDK's ``pull_logs`` response
makes a dictionary per log, in its two ways. Requests and waiting are not included.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import lz4.block
from aliyun.log.pulllog_response import PullLogResponse
from pyspark.sql.types import LongType, StringType, StructType

from producer.spark.reading.arrow import Batches
from producer.spark.reading.schema import default_schema
from producer.wire.compression import decompress
from producer.wire.log_group import encode_tail
from producer.wire.protobuf import delimited
from producer.wire.read_columns import read_groups
from producer.wire.speed import encode_log

LOGS_A_GROUP = 1800


@dataclass(frozen=True)
class Answer:
    """An answer of ``logs`` logs.

    :ivar body: the compressed body.
    :ivar size: bytes of the decompressed body.
    """

    body: bytes
    size: int
    logs: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers that the SDK reads."""
        return {"x-log-count": "1", "x-log-cursor": "MTI=", "x-log-bodyrawsize": str(self.size)}


def weblog(number: int) -> dict[str, str]:
    """Return a log of about 290 bytes."""
    seed = number * 2654435761 % 2**32
    return {
        "agent": f"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.{seed % 90} Chrome/{80 + seed % 40}",
        "id": str(number),
        "ip": f"10.{seed % 251}.{(seed >> 8) % 251}.{(seed >> 16) % 251}",
        "latency": f"{seed % 100000 / 1000:.3f}",
        "method": ("GET", "POST", "PUT")[seed % 3],
        "path": f"/shop/category-{seed % 97}/article-{seed % 100003}?session={seed:x}",
        "referer": f"https://www.example.com/search?q={seed % 1000}",
        "size": str(seed % 65536),
        "status": ("200", "200", "200", "304", "404", "503")[seed % 6],
    }


def answer_of(logs: int) -> Answer:
    """Return an answer with these logs, in LogGroups of one batch each."""
    groups = []
    for first in range(0, logs, LOGS_A_GROUP):
        numbers = range(first, min(logs, first + LOGS_A_GROUP))
        records = b"".join(encode_log(weblog(number), 1_700_000_000 + number, 0) for number in numbers)
        groups.append(delimited(0x0A, records + encode_tail("topic", "10.0.0.1", (("__pack_id__", "A-1"),))))
    body = b"".join(groups)
    return Answer(lz4.block.compress(body, store_size=False), len(body), logs)


def columns(answer: Answer, schema: StructType) -> int:
    """Decode into record batches, and return the number of rows."""
    body = decompress(answer.body, "lz4", answer.size)
    groups, batches = read_groups(body), Batches(schema, "0", failfast=False)
    cursors = [str(number) for number in range(len(groups.sizes))]
    made = [*batches.add(groups, cursors, len(body)), *batches.rest()]
    return sum(batch.num_rows for batch in made)


def dictionaries(answer: Answer) -> int:
    """Decode into a dictionary per log through the SDK's messages, and return the number of logs."""
    response = PullLogResponse(lz4.block.decompress(answer.body, answer.size), answer.headers)
    groups = response.get_loggroup_list().LogGroups
    return len([{field.Key: field.Value for field in log.Contents} for group in groups for log in group.Logs])


def flattened(answer: Answer) -> int:
    """Decode through the SDK's ``get_flatten_logs_json``, and return the number of logs."""
    return len(PullLogResponse(lz4.block.decompress(answer.body, answer.size), answer.headers).get_flatten_logs_json())


def _every_field() -> StructType:
    schema = StructType()
    for name in weblog(0):
        schema = schema.add(name, StringType())
    return schema


WAYS: dict[str, Callable[[Answer], Any]] = {
    "columns of all fields": lambda answer: columns(answer, _every_field()),
    "columns of two fields": lambda answer: columns(answer, StructType().add("path", "string").add("size", LongType())),
    "the default schema": lambda answer: columns(answer, default_schema()),
    "pull_logs, its messages as dictionaries": dictionaries,
    "pull_logs, get_flatten_logs_json": flattened,
}


def measure(answer: Answer, rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each way in each round."""
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            start = time.process_time()
            assert way(answer) == answer.logs
            found[name].append(time.process_time() - start)
    return found


def report(answer: Answer, found: dict[str, list[float]]) -> str:
    """Return a Markdown table: medians, and ratios to the peers' rates, taken round by round."""
    peers = list(WAYS)[3:]
    lines = [
        "| way | CPU of a log, µs | times the rate of those dictionaries | of get_flatten_logs_json |",
        "|---|---|---|---|",
    ]
    for name, seconds in found.items():
        times = [statistics.median(a / b for a, b in zip(found[peer], seconds, strict=True)) for peer in peers]
        cost = 1e6 * statistics.median(seconds) / answer.logs
        lines.append(f"| {name} | {cost:.2f} | {times[0]:.1f} | {times[1]:.1f} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure all ways and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.reading", description=__doc__)
    parser.add_argument("--logs", type=int, default=36_000, help="in the answer")
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args(argv)
    answer = answer_of(args.logs)
    print(f"{answer.logs:,} logs, {answer.size / 1e6:.1f} MB, {len(answer.body) / 1e6:.1f} MB compressed")
    print(report(answer, measure(answer, args.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
