"""Where the time of a log goes, from ``send`` to its checked future: ``python -m tests.benchmarks.anatomy``.

Each part is timed alone, on one thread, as the CPU time that it takes for each log, the best of several rounds; what
the parts do not explain is the glue between them. A part may be cheaper alone than in its place, where it finds the
processor's caches full of other things. The compiled ``send`` takes no lock, and no call to ask for the time: zeros.
"""

import argparse
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from producer import Producer, ProducerConfig, SendFuture
from producer.testing import RecordingSink
from producer.wire.compression import compress
from producer.wire.speed import encode_log

from .deadline import deadline
from .shapes import Log, logs_of

#: Logs of one timing: about the batch of a megabyte.
COUNT = 2000
_NOW = 1_700_000_000
#: Seconds that all parts may take.
PATIENCE = 300


def _each(call: Callable[[Log], object], logs: Sequence[Log]) -> Callable[[], object]:
    def run() -> None:
        for log in logs:
            call(log)

    return run


def _empty(_log: Log) -> None:
    pass


def _best(run: Callable[[], object], rounds: int) -> float:
    """CPU microseconds of one log."""
    times = []
    for _ in range(rounds):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times) / COUNT * 1e6


def parts_of(shape: str, rounds: int) -> list[tuple[str, float]]:
    """The parts, in the order in which a log meets them, and the microseconds of each."""
    logs = logs_of(shape)
    logs = [logs[number % len(logs)] for number in range(COUNT)]
    with Producer(sink=RecordingSink(), config=ProducerConfig(batch_size_threshold_in_bytes=2**22)) as producer:
        stream = producer.stream("p", "l")
        for log in logs[:20]:
            stream.send(log)
        body = b"".join(encode_log(log, _NOW) for log in logs)
        small = compress(body, "lz4")
        futures = [stream.send(log) for log in logs]
        producer.flush()
        call = _best(_each(_empty, logs), rounds)
        lock, holder = threading.Lock(), futures[0]._holder

        def locked(_log: Log) -> None:
            with lock:
                pass

        kind = type(futures[0])
        is_pure = kind is SendFuture

        def born(_log: Log) -> None:
            future = kind.__new__(kind)
            if is_pure:  # else C does this as well
                future._holder, future._position = holder, 0

        alone: Iterable[tuple[str, Callable[[Log], object]]] = (
            ("the record", lambda log: encode_log(log, _NOW)),
            ("the time of day", (lambda _log: time.time()) if is_pure else _empty),
            ("the future", born),
            ("the lock", locked if is_pure else _empty),
        )
        found = [(name, max(0.0, _best(_each(part, logs), rounds) - call)) for name, part in alone]
        whole = _best(_each(stream.send, logs), rounds)
        glue = ("calls, memory account, places in the batch", whole - sum(cost for _, cost in found))
        return [
            *found,
            glue,
            ("**send**", whole),
            ("lz4, without the interpreter's lock", _best(lambda: compress(body, "lz4"), rounds)),
            ("MD5, likewise", _best(lambda: hashlib.md5(small, usedforsecurity=False).digest(), rounds)),
            ("look at the result", _best(lambda: [future.result().successful for future in futures], rounds)),
        ]


def main(arguments: list[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.anatomy", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args(arguments).rounds
    with deadline(PATIENCE):
        java, web = parts_of("java", rounds), parts_of("web", rounds)
    print("| part | Java shape, µs | web shape, µs |\n|---|---|---|")
    for (name, first), (_, second) in zip(java, web, strict=True):
        print(f"| {name} | {first:.2f} | {second:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
