"""Arrow columns beside dictionaries: ``python -m tests.benchmarks.arrow``.

The first table is about one thread and no server: how long a log takes to encode by columns and by ``LogEncoder``, and
what share of the speed of lz4 alone is left when the columns are encoded first. The second one sends to a null server.
All figures of a line are medians of one run, taken by turns; those of the first are CPU time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from producer import Producer, ProducerConfig, ProjectConfig
from producer.wire.columnar import ColumnarEncoder
from producer.wire.compression import compress
from producer.wire.log_group import LogEncoder

from .__main__ import SHAPES, Round, check_sample, null_server, take_counts, timed

NOW = 1_700_000_000
#: Rows that are encoded at once: about two megabytes of the web shape.
SLICE = 8000


def rows_of(shape: str, count: int) -> list[dict[str, str]]:
    """Logs of a shape; each value is cut by up to seven characters, so that they differ."""
    choose = random.Random(1)  # the same ones each time
    return [
        {name: text[: max(1, len(text) - choose.randrange(8))] for name, text in SHAPES[shape].items()}
        for _ in range(count)
    ]


def encoding(shape: str, rounds: int) -> tuple[float, float, float, float]:
    """CPU seconds of encoding by columns, by ``LogEncoder``, of lz4, and of columns and lz4 together; medians."""
    rows = rows_of(shape, SLICE)
    batch = pa.RecordBatch.from_pylist(rows)
    columns, logs = ColumnarEncoder(batch.schema), LogEncoder()
    body = bytes(columns.encode(batch, NOW).body)
    assert body == b"".join(logs.encode(row, NOW) for row in rows)
    cases: list[Callable[[], object]] = [
        lambda: columns.encode(batch, NOW),
        lambda: [logs.encode(row, NOW) for row in rows],
        lambda: compress(body, "lz4"),
        lambda: compress(bytes(columns.encode(batch, NOW).body), "lz4"),
    ]
    found: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for case, times in zip(cases, found, strict=True):
            start = time.thread_time()
            case()
            times.append(time.thread_time() - start)
    first, second, third, fourth = (statistics.median(times) for times in found)
    return first, second, third, fourth


def sending(port: int, shape: str, count: int) -> tuple[Round, Round]:
    """A round of ``send_arrow`` of one table, and one of ``send``; every future is checked."""
    project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
    table = pa.table({name: [text] * count for name, text in SHAPES[shape].items()})
    with Producer(project, config=ProducerConfig(batch_size_threshold_in_bytes=1024 * 1024)) as producer:
        stream = producer.stream("p", "bench", topic="t", source="s")

        def by_columns() -> int:
            futures = stream.send_arrow(table)
            producer.flush()
            return count if all(future.result().successful for future in futures) else 0

        def one_by_one() -> int:
            log = SHAPES[shape]
            futures = [stream.send(log) for _ in range(count)]
            producer.flush()
            return sum(future.result().successful for future in futures)

        return timed(by_columns), timed(one_by_one)


def sent(shape: str, count: int, rounds: int) -> tuple[float, float]:
    """Logs a second of ``send_arrow`` and of ``send``: medians; the server counts, and a sample is decoded."""
    rates: list[tuple[float, float]] = []
    with null_server() as port:
        for _ in range(rounds):
            pair = sending(port, shape, count)
            assert all(one.delivered == count for one in pair)
            check_sample(take_counts(port), SHAPES[shape])
            rates.append((count / pair[0].seconds, count / pair[1].seconds))
    arrow, one = zip(*rates, strict=True)
    return statistics.median(arrow), statistics.median(one)


def main(arguments: list[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.arrow", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=300_000, help="logs of a round that is sent")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    print(
        "| shape | columns, us/log | LogEncoder, us/log | ratio | lz4, us/log | columns and lz4, share of lz4 alone |"
    )
    print("|---|---|---|---|---|---|")
    for shape in SHAPES:
        columns, logs, lz4, both = encoding(shape, options.rounds * 5)
        figures = " | ".join(f"{seconds / SLICE * 1e6:.3f}" for seconds in (columns, logs))
        print(f"| {shape} | {figures} | {logs / columns:.1f} | {lz4 / SLICE * 1e6:.3f} | {lz4 / both:.0%} |")
    print("\n| shape | send_arrow, logs/s | send, logs/s | ratio |\n|---|---|---|---|")
    for shape in SHAPES:
        arrow, one = sent(shape, options.count, options.rounds)
        print(f"| {shape} | {arrow:,.0f} | {one:,.0f} | {arrow / one:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
