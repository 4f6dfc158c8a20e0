"""One thread into a null server: ours beside the official ``aliyun-log-producer``, in one run, by turns.

Each round sends the same logs, keeps every outcome, and counts it; one body a round is decoded with the protobuf
library and compared with what was sent, so that nothing can be fast by sending nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from producer import Producer, ProducerConfig, ProjectConfig
from producer.wire.compression import decompress
from producer.wire.schema import LogGroup

WEB_LOG = {
    "remote_addr": "192.168.100.23",
    "request": "GET /api/v1/items/12345?verbose=true HTTP/1.1",
    "status": "200",
    "bytes": "51234",
    "referer": "https://www.example.com/catalogue/items/list",
    "user_agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0",
}
JAVA_LOG = {f"content_key_{n}": f"{n}-asdfghjklqwertyuiopzxcvbnm1234567890-" + "x" * 24 for n in range(1, 9)}
SHAPES = {"web": WEB_LOG, "java": JAVA_LOG}


@dataclass(frozen=True)
class Round:
    """One timed round."""

    seconds: float
    cpu_seconds: float
    delivered: int


@contextmanager
def null_server() -> Iterator[int]:
    """The port of a null server in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.null_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def take_counts(port: int) -> dict[str, object]:
    """What the null server counted since the last call."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats") as answer:
        return dict(json.load(answer))


def timed(run: Callable[[], int]) -> Round:
    """Run one round."""
    start, cpu = time.perf_counter(), time.process_time()
    delivered = run()
    return Round(time.perf_counter() - start, time.process_time() - cpu, delivered)


def ours(port: int, log: dict[str, str], count: int) -> Round:
    """``stream.send``, a future for each log, every future checked."""
    project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
    with Producer(project, config=ProducerConfig(batch_size_threshold_in_bytes=1024 * 1024)) as producer:
        stream = producer.stream("p", "bench", topic="t", source="s")

        def run() -> int:
            futures = [stream.send(log) for _ in range(count)]
            producer.flush()
            return sum(future.result().successful for future in futures)

        return timed(run)


def ours_many(port: int, log: dict[str, str], count: int) -> Round:
    """``stream.send_many`` of a thousand logs at a time."""
    project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
    with Producer(project, config=ProducerConfig(batch_size_threshold_in_bytes=1024 * 1024)) as producer:
        stream = producer.stream("p", "bench", topic="t", source="s")

        def run() -> int:
            futures = [future for _ in range(count // 1000) for future in stream.send_many([log] * 1000)]
            producer.flush()
            return count if all(future.result().successful for future in futures) else 0

        return timed(run)


def official(port: int, log: dict[str, str], count: int) -> Round:
    """``LogstoreWriter.send`` with a delivery callback, lz4, as its documentation shows."""
    import aliyun_log_producer as peer

    # It puts the project before the endpoint's host, always; a proxy spares the look-up of such a name.
    os.environ["http_proxy"] = f"http://127.0.0.1:{port}"
    config = peer.ProducerConfig(
        endpoint="http://null.invalid", access_key_id="a", access_key_secret="s", compression="lz4"
    )
    client = peer.Producer(config)
    writer = client.writer("p", "bench")
    outcomes: list[object] = []

    def run() -> int:
        for _ in range(count):
            while True:
                try:
                    writer.send(log, topic="t", source="s", on_delivery=outcomes.append)
                    break
                except peer.EnqueueFullError:
                    time.sleep(0.001)
        client.flush()
        while len(outcomes) < count:  # its flush returns before the last callbacks have run
            time.sleep(0.001)
        return sum(outcome is None for outcome in outcomes)

    try:
        return timed(run)
    finally:
        client.close()
        del os.environ["http_proxy"]


CASES = {"ours: send": ours, "ours: send_many": ours_many, "aliyun-log-producer: send": official}


def check_sample(counts: dict[str, object], log: dict[str, str]) -> None:
    """The kept body holds the log that was sent."""
    sample = counts["sample"]
    assert isinstance(sample, dict)
    group = LogGroup.FromString(
        decompress(bytes.fromhex(sample["body"]), sample["compression"], int(sample["raw_size"]))
    )
    contents = {content.Key: content.Value for content in group.Logs[0].Contents}
    texts = {key: value.decode() if isinstance(value, bytes) else value for key, value in contents.items()}
    assert texts == log, f"the server got {texts}"


def measure(shape: str, count: int, rounds: int) -> dict[str, list[tuple[Round, float]]]:
    """Rounds of all cases by turns: for each case its rounds, with the raw megabytes that the server counted."""
    log = SHAPES[shape]
    found: dict[str, list[tuple[Round, float]]] = {name: [] for name in CASES}
    with null_server() as port:
        for case in CASES.values():
            case(port, log, max(count // 10, 1000))  # warm up
        for _turn in range(rounds):
            for name, case in CASES.items():
                take_counts(port)
                done = case(port, log, count)
                counts = take_counts(port)
                assert done.delivered == count, f"{name}: {done.delivered} of {count} delivered"
                check_sample(counts, log)
                found[name].append((done, float(str(counts["raw_bytes"])) / 1e6))
    return found


def report(shape: str, count: int, found: dict[str, list[tuple[Round, float]]]) -> str:
    """A Markdown table of medians, with ratios round by round against the official producer."""
    peer = found["aliyun-log-producer: send"]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    title = f"{shape} shape, {count:,} logs a round, {len(peer)} rounds, {python}, {os.cpu_count()} CPUs"
    lines = [
        title,
        "",
        "| case | logs/s | MB/s raw | logs per CPU second | rate against the official one (min to max) |",
        "|---|---|---|---|---|",
    ]
    for name, rounds in found.items():
        rate = statistics.median(count / done.seconds for done, _ in rounds)
        megabytes = statistics.median(mb / done.seconds for done, mb in rounds)
        per_cpu = statistics.median(count / max(done.cpu_seconds, 1e-9) for done, _ in rounds)
        ratios = [theirs.seconds / done.seconds for (done, _), (theirs, _) in zip(rounds, peer, strict=True)]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"| {name} | {rate:,.0f} | {megabytes:.0f} | {per_cpu:,.0f} | {spread} |")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="default: all")
    parser.add_argument("--count", type=int, default=200_000, help="logs a round")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    for shape in args.shape or SHAPES:
        print(report(shape, args.count, measure(shape, args.count, args.rounds)), "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
