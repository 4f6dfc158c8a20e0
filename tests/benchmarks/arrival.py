"""Measure the delay of lines and its variance, beside the rate.

``python -m tests.benchmarks.arrival`` writes lines at a steady rate into a file that an agent follows (``taildir``, a
channel, LogHub), and prints a row of a table for each channel: the average number of lines that arrived per second, and
the mean, standard deviation, median and 99th percentile of the delay between a line's write and its arrival.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from producer.server import LogHubServer

from .agent import free_port, started
from .agent_goals import PATHS, filled
from .installation import PATIENCE

CHANNELS = {"file": "loghub", "memory": "text"}
#: Seconds between two counts of the arrived lines: the accuracy of a delay.
_COUNT_SECONDS = 0.002
_LINE = b"x" * 239 + b"%010d\n"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals of one run: lines per second, and the delays' mean, standard deviation, median and p99 in seconds."""

    rate: float
    mean: float
    spread: float
    median: float
    late: float

    def row(self, channel: str) -> str:
        shown = " | ".join(f"{1000 * each:.0f}" for each in (self.mean, self.spread, self.median, self.late))
        return f"| taildir → {channel} → LogHub | {self.rate:,.0f} | {shown} |"


def arrivals(written: Sequence[float], arrived: Sequence[float]) -> Arrivals:
    """Compute the figures from the times of writes and arrivals, both in the lines' order."""
    delays = sorted(end - begin for begin, end in zip(written, arrived, strict=True))
    rate = len(delays) / (max(arrived) - min(written))
    late = delays[min(len(delays) - 1, len(delays) * 99 // 100)]
    return Arrivals(rate, statistics.fmean(delays), statistics.pstdev(delays), statistics.median(delays), late)


def measure(channel: str, rate: int, count: int) -> Arrivals:
    """Run an agent once, with ``count`` lines at ``rate`` per second."""
    with tempfile.TemporaryDirectory(prefix="agent-") as folder, LogHubServer() as server:
        (Path(folder) / "in").mkdir()
        file = Path(folder) / "agent.toml"
        text = filled(PATHS[CHANNELS[channel]][0], Path(folder), "a", free_port())
        text = text.replace("http://127.0.0.1:{server}", server.endpoint)
        file.write_text(
            text.replace('access_key_id = "a"', f'access_key_id = "{server.access_key_id}"').replace(
                'access_key_secret = "s"', f'access_key_secret = "{server.access_key_secret}"'
            )
        )
        log = Path(folder) / "in" / "a.log"
        log.write_bytes(_LINE % 0)
        with started([sys.executable, "-m", "producer", "agent", "--config", str(file), "--no-reload"]) as process:
            _counted(server, process, 1)
            written: list[float] = []
            writer = threading.Thread(target=_write, args=(log, rate, count, written))
            writer.start()
            try:
                arrived = [_counted(server, process, number + 2) for number in range(count)]
            finally:
                writer.join()
        return arrivals(written, arrived)


def _write(log: Path, rate: int, count: int, written: list[float]) -> None:
    begun = time.monotonic()
    with log.open("ab", buffering=0) as file:
        for number in range(count):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            written.append(time.monotonic())
            file.write(_LINE % number)


def _counted(server: LogHubServer, process: subprocess.Popen[bytes], wanted: int) -> float:
    end = time.monotonic() + PATIENCE
    while server.count("p", "l") < wanted:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{server.count('p', 'l')} of {wanted} logs have arrived")
        time.sleep(_COUNT_SECONDS)
    return time.monotonic()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.arrival")
    parser.add_argument("--rate", type=int, default=200, help="lines a second")
    parser.add_argument("--count", type=int, default=2000, help="of lines")
    args = parser.parse_args(argv)
    print("| path | lines/s | delay, ms: mean | standard deviation | median | 99 of 100 within |")
    print("|---|---|---|---|---|---|")
    for channel in CHANNELS:
        print(measure(channel, args.rate, args.count).row(channel), flush=True)


if __name__ == "__main__":
    main()
