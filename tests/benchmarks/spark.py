"""Measure writes from Spark to a null server on two cores, beside writers that do nothing.

``python -m tests.benchmarks.spark`` writes the same Parquet files in every way, by turns in one session:

- Spark's own no-op writer;
- a Python data source, and a ``foreachPartition``, that only take the rows;
- this project's ``format("loghub")`` and ``write_partition``;
- ``foreachPartition`` with the official ``aliyun-log-producer``, and with ``put_logs`` of the official SDK.

The server counts the received bytes. Each run is reported on stderr when it ends. ``--case`` chooses ways; shares are
computed only from the chosen no-op ways. A plot needs the extra ``bench``.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from producer.ship.session import build_context
from producer.spark import write_partition
from tests.benchmarks.server import null_server, take_counts
from tests.spark.cluster.weblog import weblog

PARTITIONS = 4

Way = Callable[[DataFrame, int], None]


class NoopWriter(DataSourceArrowWriter):
    """A writer that takes every batch of columns."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Count the rows only."""
        for batch in iterator:
            assert batch.num_rows >= 0
        return WriterCommitMessage()


class NoopSource(DataSource):
    """A Python data source that does nothing, to measure its own cost."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "python_noop"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer."""
        return NoopWriter()


def options(port: int) -> dict[str, str]:
    """Return the options for the null server, which answers no request about the target."""
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "project": "p",
        "logstore": "bench",
        "accessKeyId": "a",
        "accessKeySecret": "s",
        "checkTarget": "false",
    }


def spark_noop(rows: DataFrame, _port: int) -> None:
    """Write with Spark's own writer, which drops the rows in the JVM."""
    rows.write.format("noop").mode("overwrite").save()


def python_noop(rows: DataFrame, _port: int) -> None:
    """Write with a Python data source that only takes the columns."""
    rows.write.format("python_noop").mode("append").save()


def loghub(rows: DataFrame, port: int) -> None:
    """Write with the data source."""
    rows.write.format("loghub").options(**options(port)).mode("append").save()


def loghub_once(rows: DataFrame, port: int) -> None:
    """Write with the data source and its option exactlyOnce."""
    once = {**options(port), "deliveryGuarantee": "exactlyOnce"}
    rows.write.format("loghub").options(**once).mode("append").save()


def partition_noop(rows: DataFrame, _port: int) -> None:
    """Write with a function per partition that only takes the rows."""
    rows.foreachPartition(exhaust)


def exhaust(rows: Iterable[Row]) -> None:
    """Take every row."""
    for _ in rows:
        pass


def partition(rows: DataFrame, port: int) -> None:
    """Write with ``write_partition``."""
    rows.foreachPartition(write_partition(options(port)))


def official(rows: DataFrame, port: int) -> None:
    """Write with ``foreachPartition`` and the official producer, and count every outcome."""

    def send(part: Iterable[Row]) -> None:
        import aliyun_log_producer as peer

        os.environ["http_proxy"] = f"http://127.0.0.1:{port}"
        client = peer.Producer(
            peer.ProducerConfig(
                endpoint="http://null.invalid", access_key_id="a", access_key_secret="s", compression="lz4"
            )
        )
        writer, outcomes, count = client.writer("p", "bench"), [], 0
        for row in part:
            count += 1
            while True:
                try:
                    writer.send(row.asDict(), topic="t", source="s", on_delivery=outcomes.append)
                    break
                except peer.EnqueueFullError:
                    time.sleep(0.001)
        client.flush()
        while len(outcomes) < count:
            time.sleep(0.001)
        client.close()
        del os.environ["http_proxy"]
        assert not any(outcomes)

    rows.foreachPartition(send)


def put_logs(rows: DataFrame, port: int) -> None:
    """Write with ``foreachPartition`` and ``put_logs`` of the official SDK, 4,096 rows per request."""

    def send(part: Iterable[Row]) -> None:
        from aliyun.log import LogClient, LogItem, PutLogsRequest

        client = LogClient(f"http://127.0.0.1:{port}", "a", "s", source="s")
        # It puts the project before the host of an endpoint, except before an IP address without a port. Through a
        # proxy, its HTTP library would wait 40 ms in each request (Nagle's algorithm).
        client._isRowIp = True
        remaining = iter(part)
        while chunk := list(islice(remaining, 4096)):
            items = [LogItem(contents=list(row.asDict().items())) for row in chunk]
            client.put_logs(PutLogsRequest("p", "bench", "t", "s", items, compress=True))

    rows.foreachPartition(send)


#: The titles of the ways in the table.
TITLES = {
    "jvm": "Spark's no-op writer (JVM)",
    "format": "Python data source that does nothing",
    "loghub": 'format("loghub")',
    "once": 'format("loghub"), exactlyOnce',
    "foreach": "foreachPartition that does nothing",
    "partition": "foreachPartition, write_partition",
    "official": "foreachPartition, aliyun-log-producer",
    "put_logs": "foreachPartition, put_logs",
}
WAYS: dict[str, Way] = {
    "jvm": spark_noop,
    "format": python_noop,
    "loghub": loghub,
    "once": loghub_once,
    "foreach": partition_noop,
    "partition": partition,
    "official": official,
    "put_logs": put_logs,
}
#: The no-op way into Python that each of our ways is compared with.
BASES = {name: "format" if name in {"jvm", "format", "loghub", "once"} else "foreach" for name in WAYS}
#: The ways that send nothing.
SILENT = (spark_noop, python_noop, partition_noop)


def measure(session: SparkSession, count: int, rounds: int, ways: dict[str, Way]) -> dict[str, list[float]]:
    """Return the seconds of each way in each round."""
    session.dataSource.register(NoopSource)
    found: dict[str, list[float]] = {name: [] for name in ways}
    with null_server() as port, tempfile.TemporaryDirectory() as folder:
        weblog(session, count, PARTITIONS).write.parquet(str(Path(folder, "rows")))
        rows = session.read.parquet(str(Path(folder, "rows")))
        for way in ways.values():
            way(rows.limit(1000), port)  # start the workers
        for _ in range(rounds):
            for name, way in ways.items():
                take_counts(port)
                start = time.perf_counter()
                way(rows, port)
                seconds = time.perf_counter() - start
                sent = float(str(take_counts(port)["raw_bytes"]))
                assert way in SILENT or sent > 200 * count, f"{name}: only {sent:.0f} bytes arrived"
                found[name].append(seconds)
                print(f"{name:9} {count / seconds:12,.0f} rows/s", file=sys.stderr, flush=True)
    return found


def report(count: int, found: dict[str, list[float]]) -> str:
    """Return a Markdown table: medians, and shares taken round by round."""
    rounds, python = len(next(iter(found.values()))), platform.python_version()
    lines = [
        f"{count:,} rows of 9 columns, {rounds} rounds, Python {python}, {os.cpu_count()} CPUs",
        "",
        "| way | rows/s | share of Spark's no-op writer | share of the same way into Python that does nothing |",
        "|---|---|---|---|",
    ]
    for name, seconds in found.items():
        rate = statistics.median(count / each for each in seconds)
        shares = [_share(found.get(other), seconds) for other in ("jvm", BASES[name])]
        lines.append(f"| {TITLES[name]} | {rate:,.0f} | {shares[0]} | {shares[1]} |")
    return "\n".join(lines)


def _share(base: list[float] | None, seconds: list[float]) -> str:
    if base is None:
        return ""
    shares = [theirs / ours for theirs, ours in zip(base, seconds, strict=True)]
    return f"{statistics.median(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})"


def draw(count: int, found: dict[str, list[float]], path: Path) -> None:
    """Draw the medians."""
    from matplotlib import pyplot

    names = list(found)[::-1]
    rates = [statistics.median(count / seconds for seconds in found[name]) / 1000 for name in names]
    figure, axes = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    colors = ["#3b6ea5" if name in {"loghub", "once", "partition"} else "#b9c4cf" for name in names]
    bars = axes.barh([TITLES[name] for name in names], rates, color=colors)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.set_xlabel("thousand rows a second (two cores)")
    axes.set_xscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main(argv: list[str] | None = None) -> int:
    """Measure the chosen ways and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.spark", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="rows a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", nargs="+", choices=WAYS, default=list(WAYS), help="default: all")
    parser.add_argument("--plot", type=Path, help="where to draw the rates, such as docs/images/spark-rates.svg")
    args = parser.parse_args(argv)
    build_context(master="local[2,4]")
    session = SparkSession.builder.getOrCreate()
    found = measure(session, args.count, args.rounds, {name: WAYS[name] for name in args.case})
    session.stop()
    print(report(args.count, found))
    if args.plot:
        draw(args.count, found, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
