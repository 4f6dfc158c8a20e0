"""Exchange jobs and answers between the benchmark and a client: one line of JSON each, over stdin and stdout.

The module needs only the standard library, since peers run in environments of their own.
"""

import dataclasses
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A measurement that a client is asked for.

    :ivar way: the name of one of the client's ways.
    :ivar shape: the argument of :func:`tests.benchmarks.shapes.logs_of`.
    :ivar count: number of logs.
    :ivar address: ``host:port`` of the null server or the broker.
    :ivar threads: number of sender threads, which share the logs evenly.
    :ivar streams: number of pairs of topic and source, which are used in turn.
    :ivar rate: logs per second of all threads, with each call timed; 0 means full speed.
    :ivar options: options of the client, such as ``total_size_in_bytes`` or ``linger_ms``.
    """

    way: str
    shape: str
    count: int
    address: str
    threads: int = 1
    streams: int = 1
    rate: int = 0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a job.

    :ivar seconds: time from the first send until the last outcome was checked.
    :ivar cpu_seconds: CPU time of all threads of the client's process in these seconds.
    :ivar peak_bytes: the process's largest resident size so far.
    :ivar delivered: number of logs whose outcome is a success.
    :ivar send_seconds: with a rate, the :data:`QUANTILES` of the duration of a call.
    :ivar ack_seconds: with a rate, the :data:`QUANTILES` of the time from the call to the outcome.
    :ivar figures: other figures of the way, by name.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    delivered: int
    send_seconds: list[float] = field(default_factory=list)
    ack_seconds: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


#: The quantiles that an answer holds.
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)


def quantiles_of(values: Sequence[float]) -> list[float]:
    """Return the :data:`QUANTILES` of the values, or nothing if there are no values."""
    ranked = sorted(values)
    return [ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in QUANTILES] if ranked else []


def peak_bytes() -> int:
    """Return the largest resident size of this process so far."""
    status = Path("/proc/self/status")  # unlike rusage, it can be reset and does not include the parent's peak
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def timed(run: Callable[[], int]) -> Answer:
    """Run a job's body, which returns the number of delivered logs, and measure it."""
    start, cpu = time.perf_counter(), time.process_time()
    delivered = run()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    return Answer(seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=peak_bytes(), delivered=delivered)


def in_threads(threads: int, run: Callable[[int], None]) -> None:
    """Call ``run`` with 0 … ``threads`` - 1, each on its own thread; raise the first error."""
    if threads == 1:
        run(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(run, number) for number in range(threads)]:
            done.result()


def paced(count: int, rate: int, send: Callable[[int], object]) -> list[float]:
    """Call ``send`` with 0 … ``count`` - 1 at ``rate`` calls per second, in bursts of a millisecond; return their
    times.

    The schedule does not wait for slow calls: the calls that they delay follow at once.
    """
    taken: list[float] = []
    clock, start, burst = time.perf_counter, time.perf_counter(), max(1, rate // 1000)
    for number in range(count):
        if number % burst == 0:
            ahead = start + number / rate - clock()
            if ahead > 0:
                time.sleep(ahead)
        before = clock()
        send(number)
        taken.append(clock() - before)
    return taken


def serve(ways: dict[str, Callable[[Job], Answer]]) -> None:
    """Print a line with the names of the ways, then answer jobs until stdin ends."""
    print(json.dumps(sorted(ways)), flush=True)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        print(json.dumps(dataclasses.asdict(ways[job.way](job))), flush=True)
