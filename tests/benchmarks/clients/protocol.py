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
    """One measurement.

    :ivar way: which of the client's ways to send.
    :ivar shape: as :func:`tests.benchmarks.shapes.logs_of` takes it.
    :ivar count: logs in all.
    :ivar address: where to send: ``host:port`` of the null server, or of a broker.
    :ivar threads: sender threads, which share the logs evenly.
    :ivar streams: pairs of topic and source, used in turn.
    :ivar rate: logs a second in all; 0 is as fast as it goes. With a rate the latencies are taken.
    :ivar options: of the client: ``total_size_in_bytes``, ``linger_ms``, …
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

    :ivar seconds: from the first send to the last outcome, checked.
    :ivar cpu_seconds: of the client's process in that time, all its threads.
    :ivar peak_bytes: the process's largest resident size so far.
    :ivar delivered: logs whose outcome is known, and good.
    :ivar send_seconds: how long each call took, if there was a rate: the quantiles of :data:`QUANTILES`.
    :ivar ack_seconds: likewise from the call to the outcome.
    :ivar figures: whatever else the way measures, by name.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    delivered: int
    send_seconds: list[float] = field(default_factory=list)
    ack_seconds: list[float] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


#: Those that an answer holds.
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)


def quantiles_of(values: Sequence[float]) -> list[float]:
    """The quantiles of :data:`QUANTILES`; empty if there are no values."""
    ranked = sorted(values)
    return [ranked[min(len(ranked) - 1, int(share * len(ranked)))] for share in QUANTILES] if ranked else []


def peak_bytes() -> int:
    """The largest resident size of this process so far."""
    status = Path("/proc/self/status")  # it can be set back, and knows nothing of the parent
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def timed(run: Callable[[], int]) -> Answer:
    """Run a job's body, which returns how many logs were delivered."""
    start, cpu = time.perf_counter(), time.process_time()
    delivered = run()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    return Answer(seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=peak_bytes(), delivered=delivered)


def in_threads(threads: int, run: Callable[[int], None]) -> None:
    """Call ``run`` with 0 … ``threads`` - 1, each on a thread; what one raises is raised here."""
    if threads == 1:
        run(0)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(run, number) for number in range(threads)]:
            done.result()


def paced(count: int, rate: int, send: Callable[[int], object]) -> list[float]:
    """Call ``send`` with 0 … ``count`` - 1 at ``rate`` calls a second, in bursts of a millisecond; how long each took.

    The schedule does not wait for slow calls: what they delay is sent at once after them.
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
    """Answer jobs until stdin ends. First a line that names the ways."""
    print(json.dumps(sorted(ways)), flush=True)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        print(json.dumps(dataclasses.asdict(ways[job.way](job))), flush=True)
