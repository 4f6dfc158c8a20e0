"""Measure channels: commits per second, replay, memory of the queue.

``python -m tests.benchmarks.channels`` prints Markdown tables, each row as soon as it is measured; ``--case`` chooses
tables. ``--case flume``, which needs Maven and Java, runs Apache Flume's file channel beside ours. The case ``durable``
of ``python -m tests.benchmarks`` measures the producer with a channel.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from producer.channels import Event, FileChannel, MemoryChannel
from producer.model.interfaces import Channel

from .agent import install_flume
from .deadline import deadline
from .installation import HERE

#: Maximum seconds of each table.
PATIENCE = 900
BODY = bytes(range(250))
SIZES = (1, 10, 100, 1000)
MODES: tuple[str | float, ...] = ("commit", 1.0, "os")
CASES = ("commits", "groups", "replay", "flume")
_RATES = HERE / "clients" / "flume" / "FileChannelRates.java"

_OPEN = """
import sys, time
from producer.channels import FileChannel
def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20
before = resident()
start = time.perf_counter()
channel = FileChannel(sys.argv[1], capacity=10**8, checkpoint_interval=None)
seconds = time.perf_counter() - start
print(seconds, channel.stats().size, channel.stats().file.replayed, resident() - before)
channel.close()
"""


def _events(count: int) -> list[Event]:
    return [Event({"n": "1"}, BODY) for _ in range(count)]


def put(channel: Channel, count: int, size: int) -> float:
    """Return the seconds for puts of ``count`` events, ``size`` in a transaction."""
    events = _events(size)
    start = time.perf_counter()
    for _ in range(count // size):
        with channel.transaction() as transaction:
            transaction.put_many(events)
    return time.perf_counter() - start


def take(channel: Channel, count: int, size: int) -> float:
    """Return the seconds for taking ``count`` events, ``size`` in a transaction."""
    left, start = count, time.perf_counter()
    while left:
        with channel.transaction() as transaction:
            left -= len(transaction.take(min(size, left), timeout=0))
    return time.perf_counter() - start


@contextmanager
def file_channel(fsync: str | float, directory: str | None = None) -> Iterator[FileChannel]:
    """Yield a channel in a temporary directory."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as place,
        FileChannel(place, capacity=10**7, fsync=fsync, transaction_capacity=10**5) as channel,
    ):
        yield channel


def commits(count: int, rounds: int) -> Iterator[str]:
    """Yield a table with the rates of puts and takes by channel, mode and size of the transaction."""
    yield "| channel | events a commit | put: commits/s | put: MB/s | put: µs an event | take: µs an event |"
    yield "|---|---|---|---|---|---|"
    for name, make in _channels():
        for size in SIZES:
            total = max(size, count // 10 if size == 1 else count)
            puts, takes = [], []
            for _ in range(rounds):
                with make() as channel:
                    puts.append(put(channel, total, size) / total)
                    takes.append(take(channel, total, size) / total)
            each, took = statistics.median(puts), statistics.median(takes)
            rate, megabytes = 1 / each / size, len(BODY) / each / 1e6
            yield f"| {name} | {size} | {rate:,.0f} | {megabytes:,.1f} | {each * 1e6:,.2f} | {took * 1e6:,.2f} |"


def _channels() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "memory", lambda: MemoryChannel(10**6, transaction_capacity=10**5, byte_capacity=10**9)
    for mode in MODES:
        label = f"{mode:g} s" if isinstance(mode, float) else mode
        yield f"file, fsync {label}", lambda mode=mode: file_channel(mode)


def groups(count: int) -> Iterator[str]:
    """Yield a table with the rate of one-event commits from several threads, and how many commits share a sync."""
    yield "| threads | commits/s | commits a sync |"
    yield "|---|---|---|"
    for threads in (1, 4, 16):
        with file_channel("commit") as channel:
            each = count // 10 // threads
            work = [threading.Thread(target=put, args=(channel, each, 1)) for _ in range(threads)]
            start = time.perf_counter()
            for thread in work:
                thread.start()
            for thread in work:
                thread.join()
            seconds = time.perf_counter() - start
            stats = channel.stats()
            assert stats.file is not None
            yield f"| {threads} | {each * threads / seconds:,.0f} | {each * threads / max(1, stats.file.syncs):.1f} |"


def raw(count: int, size: int, folder: str) -> float:
    """Return the seconds for repeated writes and ``fdatasync`` calls of the bodies of ``size`` events."""
    data = BODY * size
    file = os.open(f"{folder}/raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        start = time.perf_counter()
        for _ in range(count // size):
            os.write(file, data)
            os.fdatasync(file)
        return time.perf_counter() - start
    finally:
        os.close(file)


def flume(count: int, size: int, folder: str) -> tuple[float, float]:
    """Return the seconds of puts and takes by Flume's own file channel, which syncs at each commit.

    :raises NotInstalledError: Maven or Java is missing.
    """
    java = ["java", "-Xmx1g", "-cp", f"{install_flume()}/*", str(_RATES), folder]
    done = subprocess.run([*java, *map(str, (count, size, len(BODY)))], capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("seconds "))
    _, puts, takes = line.split()
    return float(puts), float(takes)


def ours(count: int, size: int, folder: str) -> tuple[float, float]:
    """Return the seconds of puts and takes by our file channel."""
    with file_channel("commit", folder) as channel:
        return put(channel, count, size), take(channel, count, size)


def beside_flume(count: int, rounds: int) -> Iterator[str]:
    """Yield a table with medians for both file channels and the bare disk, with one thread and a sync per commit."""
    names = ("put, Flume → ours: events/s", "ratio", "times the disk", "take, Flume → ours: events/s", "ratio")
    yield f"| events a commit | disk: µs a commit | {' | '.join(names)} |"
    yield "|---|---|---|---|---|---|---|"
    for size in SIZES:
        total = count // 10 if size == 1 else count
        found = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                seconds = raw(total, size, folder), *flume(total, size, folder), *ours(total, size, folder)
            found.append(seconds)
        disk, flume_put, flume_take, our_put, our_take = (
            statistics.median(column) for column in zip(*found, strict=True)
        )
        puts = f"{total / flume_put:,.0f} → {total / our_put:,.0f} | {flume_put / our_put:.2f} | {our_put / disk:.2f}"
        takes = f"{total / flume_take:,.0f} → {total / our_take:,.0f} | {flume_take / our_take:.2f}"
        yield f"| {size} | {disk / total * size * 1e6:,.0f} | {puts} | {takes} |"


def replay(count: int) -> Iterator[str]:
    """Yield a table with the seconds for opening a channel of ``count`` events, each time in a new process."""
    yield "| opening | seconds | records read | events | events/s | MB/s | memory, MiB |"
    yield "|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as directory:
        with FileChannel(directory, capacity=10**8, fsync="os") as channel:
            put(channel, count, 1000)
        for name in ("from a checkpoint", "from the log alone"):
            if name != "from a checkpoint":
                for copy in ("checkpoint", "checkpoint.backup"):
                    Path(directory, copy).unlink()
            done = subprocess.run([sys.executable, "-c", _OPEN, directory], capture_output=True, text=True, check=True)
            seconds, events, records, memory = map(float, done.stdout.split())
            assert events == count
            rate, megabytes = events / seconds, events * len(BODY) / seconds / 1e6
            rates = f"{rate:,.0f} | {megabytes:,.0f} | {memory:.0f}"
            yield f"| {name} | {seconds:.2f} | {records:,.0f} | {events:,.0f} | {rates} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the chosen tables and print them."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.channels", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="events of each measurement")
    parser.add_argument("--events", type=int, default=1_000_000, help="events that are replayed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", nargs="+", choices=CASES, help="default: all but flume")
    args = parser.parse_args(argv)
    if args.case and "flume" in args.case:
        install_flume()
    tables = {
        "commits": ("Commits", commits(args.count, args.rounds)),
        "flume": ("FileChannel beside Apache Flume's", beside_flume(args.count, args.rounds)),
        "groups": ("Group commit: one event a commit", groups(args.count)),
        "replay": (f"Replay of {args.events:,} events of {len(BODY)} bytes", replay(args.events)),
    }
    for name in args.case or [name for name in CASES if name != "flume"]:
        title, lines = tables[name]
        with deadline(PATIENCE):
            print(f"{title}\n", flush=True)
            for line in lines:
                print(line, flush=True)
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
