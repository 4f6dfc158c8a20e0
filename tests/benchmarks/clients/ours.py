"""Send with this project's producer, as its documentation shows: batches of 1 MiB, all other options as by default.

The program is ``python -m tests.benchmarks.clients.ours``. Beside the ways that send there are ways that wait:
``idle``, ``dead``, ``stalled``. In the way ``kept`` the batches have their default size, too.
"""

import dataclasses
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from producer import (
    CloseTimeoutError,
    Producer,
    ProducerConfig,
    ProjectConfig,
    Result,
    SendFuture,
    SendTimeoutError,
    Stream,
)
from producer.channels import FileChannel

from ..shapes import Log, logs_of, size_of, streams_of
from .latency import Callback, at_rate
from .protocol import Answer, Job, in_threads, serve, timed

#: Logs of one ``send_many``; maximum rows and bytes of one ``send_arrow``.
MANY, ROWS, _LOT_BYTES = 1000, 8000, 2**24
#: Logs of one ``send_many`` with a durable channel; bytes of a file that are read at once.
FEW, BLOCK = 100, 2**20
# Number of different batches, so that the processor's caches do not hold all logs.
_LOTS = 4
# Futures are checked in windows, and only the newest 100,000 of all threads are kept, so ten million need not exist at
# once. With several threads such a check would wait for batches that other threads fill; with the option ``to_the_end``
# all futures are kept.
_WINDOW, _WINDOWS = 10_000, 10
_BATCHES_OF_DEAD, _SETTLE_SECONDS = 1000, 7.0

# Options of a job that are not options of the producer.
_NO_OPTIONS = ("seconds", "fsync", "to_the_end")
_USUAL = {"batch_size_threshold_in_bytes": 2**20}

Check = Callable[[], int]


@contextmanager
def opened(job: Job, **options: Any) -> Iterator[tuple[Producer, list[Stream]]]:
    """Yield a producer and streams for the job; with the option ``fsync`` it has a channel in a temporary directory."""
    project = ProjectConfig("p", endpoint=f"http://{job.address}", access_key_id="a", access_key_secret="s")
    own = {name: value for name, value in job.options.items() if name not in _NO_OPTIONS}
    config = ProducerConfig.from_mapping(({} if job.way == "kept" else _USUAL) | options | own)
    with ExitStack() as stack:
        channel: FileChannel | None = None
        if "fsync" in job.options:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            channel = FileChannel(directory, capacity=10**7, fsync=job.options["fsync"])
        producer = stack.enter_context(Producer(project, config=config, channel=channel))
        yield producer, [producer.stream("p", "bench", topic=t, source=s) for t, s in streams_of(job.streams)]


def shared(job: Job, work: Callable[[list[Stream], int], Check]) -> Answer:
    """Share the logs among threads that call ``work`` with their counts; then flush and run all checks."""
    checks: list[Check] = [int] * job.threads
    cpu = [0.0] * job.threads

    def run(number: int) -> None:
        start = time.thread_time()
        checks[number] = work(streams, job.count // job.threads)
        cpu[number] = time.thread_time() - start

    def all_of_them() -> int:
        in_threads(job.threads, run)
        producer.flush()
        return sum(check() for check in checks)

    with opened(job) as (producer, streams):
        answer = timed(all_of_them)
        answer.figures["sender_cpu_seconds"] = sum(cpu)
        return answer


def turns(streams: list[Stream], logs: list[Log], count: int) -> Iterator[tuple[Stream, Log]]:
    return itertools.islice(zip(itertools.cycle(streams), itertools.cycle(logs), strict=False), count)


def succeeded(future: SendFuture) -> bool:
    """Wait for the outcome and return True; raise a failure."""
    return future.result().successful


def good(futures: list[SendFuture]) -> int:
    return sum(map(succeeded, futures))


def send(job: Job) -> Answer:
    """Call ``stream.send`` for each log, and check each future."""
    return with_rate(job) if job.rate else send_all(job)


def send_all(job: Job) -> Answer:
    """Send at full speed. The figure ``live_us`` is the senders' CPU per log, without the first log of each stream."""
    logs = logs_of(job.shape)
    # If the job sets a linger, no future settles before the flush.
    to_the_end = "linger_ms" in job.options or job.options.get("to_the_end", False)
    live: list[float] = []

    def work(streams: list[Stream], count: int) -> Check:
        pairs, delivered = turns(streams, logs, count), 0
        windows = deque([send_some(itertools.islice(pairs, len(streams)))])
        start = time.thread_time()
        while futures := send_some(itertools.islice(pairs, _WINDOW // job.threads)):
            windows.append(futures)
            if len(windows) > _WINDOWS and not to_the_end:
                delivered += good(windows.popleft())
        live.append(time.thread_time() - start)
        return lambda: delivered + sum(map(good, windows))

    answer = shared(job, work)
    answer.figures["live_us"] = sum(live) / max(1, job.count - job.threads * job.streams) * 1e6
    return answer


def send_some(pairs: Iterable[tuple[Stream, Log]]) -> list[SendFuture]:
    return [stream.send(log) for stream, log in pairs]


def with_rate(job: Job) -> Answer:
    """Send at a rate, with a callback for each log that takes the time of its outcome."""
    logs, outcomes = logs_of(job.shape), list[object]()
    with opened(job) as (producer, streams):

        def one(number: int, done: Callback) -> None:
            stream = streams[number % len(streams)]
            stream.send(logs[number % len(logs)], callback=lambda result: done(None if result.successful else result))

        def finish() -> int:
            producer.flush()
            return outcomes.count(None)

        return at_rate(job, one, outcomes, finish)


def kept(job: Job) -> Answer:
    """Call ``stream.send`` for each log, append each future to a list, and check all at the end."""
    logs = logs_of(job.shape)

    def work(streams: list[Stream], count: int) -> Check:
        futures = []
        for stream, log in turns(streams, logs, count):
            futures.append(stream.send(log))
        return lambda: good(futures)

    return shared(job, work)


def send_callback(job: Job) -> Answer:
    """Call ``stream.send`` with a callback for each log, and check each outcome; futures are dropped."""
    logs = logs_of(job.shape)

    def work(streams: list[Stream], count: int) -> Check:
        outcomes: list[Result] = []
        for stream, log in turns(streams, logs, count):
            stream.send(log, callback=outcomes.append)
        return lambda: sum(result.successful for result in outcomes)

    return shared(job, work)


def send_many(job: Job) -> Answer:
    """Call ``stream.send_many`` with lists of a thousand logs, and check each future."""
    logs = logs_of(job.shape)
    lot = [logs[number % len(logs)] for number in range(MANY)]
    return by_the_lot(job, [lot], lambda stream, some: stream.send_many(some))


def durable(job: Job) -> Answer:
    """Call ``stream.send_many`` with lists of a hundred logs, each thread on its own stream, and check each future."""
    logs, taken = logs_of(job.shape), itertools.count()
    in_turn = itertools.cycle(logs)
    lots = [list(itertools.islice(in_turn, FEW)) for _ in logs]

    def work(streams: list[Stream], count: int) -> Check:
        send_some_logs, rest = streams[next(taken)].send_many, count % FEW
        sent = [send_some_logs(lot) for lot in itertools.islice(itertools.cycle(lots), count // FEW)]
        sent += [send_some_logs(logs[:rest])] * (rest > 0)
        return lambda: count * all(all(map(succeeded, futures)) for futures in sent)

    return shared(job, work)


def send_lines(job: Job) -> Answer:
    """Call ``stream.send_lines`` with the blocks of a file, which are read in the timed part, and check each future."""
    lines = [f"{log['content']}\n".encode() for log in logs_of(job.shape)]
    turns_of_file, rest = divmod(job.count, len(lines))
    with tempfile.TemporaryFile() as file:
        # The file repeats the logs many times, so that reading it costs as much as reading a long file.
        copies = min(100, turns_of_file)
        file.write(b"".join(lines) * copies or b"".join(lines))
        file.flush()
        size = turns_of_file * sum(map(len, lines)) + sum(map(len, lines[:rest]))

        def work(streams: list[Stream], count: int) -> Check:
            sent = [streams[0].send_lines(block) for block in blocks(file, size)]
            return lambda: count * all(all(map(succeeded, futures)) for futures in sent)

        return shared(job, work)


def blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield blocks of whole lines, ``size`` bytes in all; at the file's end begin again."""
    file.seek(0)
    part = b""
    while size > 0:
        read = file.read(min(BLOCK, size))
        if not read:
            file.seek(0)
            continue
        size -= len(read)
        end = read.rfind(b"\n") + 1
        yield part + read[:end]
        part = read[end:]


def send_arrow(job: Job) -> Answer:
    """Call ``stream.send_arrow`` with batches of 8,000 rows, made before the timed part, and check each future."""
    import pyarrow as pa

    logs = logs_of(job.shape)
    rows = max(1, min(ROWS, _LOT_BYTES // max(map(size_of, logs)), job.count))
    lots = [[logs[(first + row) % len(logs)] for row in range(rows)] for first in range(min(_LOTS, job.count // rows))]
    batches = [pa.RecordBatch.from_pylist(lot) for lot in lots]
    return by_the_lot(job, batches, lambda stream, some: stream.send_arrow(some))


def by_the_lot(job: Job, lots: Sequence[Any], send_lot: Callable[[Stream, Any], list[SendFuture]]) -> Answer:
    """Send lots of equal size to the streams in turn; a lot's logs count as delivered if all its futures succeed."""
    size = len(lots[0])

    def work(streams: list[Stream], count: int) -> Check:
        sizes = [size] * (count // size) + [count % size] * (count % size > 0)
        turn = zip(itertools.cycle(streams), itertools.cycle(lots), strict=False)
        sent = [send_lot(stream, lot[:some]) for some, (stream, lot) in zip(sizes, turn, strict=False)]
        return lambda: sum(some * all(map(succeeded, futures)) for some, futures in zip(sizes, sent, strict=True))

    return shared(job, work)


def measured_while_waiting(producer: Producer, seconds: float) -> Answer:
    """Measure the CPU of a producer without sends."""
    time.sleep(min(_SETTLE_SECONDS, seconds))  # until started requests end and retries are regular

    def wait() -> int:
        time.sleep(seconds)
        return 0

    answer = dataclasses.replace(timed(wait), delivered=producer.stats().delivered)
    answer.figures["waiting"] = float(held_back(producer))
    return answer


def held_back(producer: Producer) -> int:
    """Return the number of batches that wait for their next attempt, or for another batch's attempt to succeed."""
    batches = producer.stats().batches
    return batches["waiting"] + batches["queued"]


def idle(job: Job) -> Answer:
    """Measure a producer that has sent one log, and has nothing to do for ``seconds``."""
    with opened(job) as (producer, streams):
        future = streams[0].send(logs_of(job.shape)[0])
        producer.flush()
        assert future.result().successful
        return measured_while_waiting(producer, float(job.options["seconds"]))


def dead(job: Job) -> Answer:
    """Measure a producer whose 1,000 batches wait for a server that is down, for ``seconds``."""
    with opened(job, drain_timeout_ms=0, linger_ms=100) as (producer, _):
        log, give_up = logs_of(job.shape)[0], time.monotonic() + 30
        for number in range(_BATCHES_OF_DEAD):
            producer.send("p", "bench", log, topic=f"topic-{number}")
        while held_back(producer) < _BATCHES_OF_DEAD - 2 and time.monotonic() < give_up:
            time.sleep(0.05)
        return measured_while_waiting(producer, float(job.options["seconds"]))


def stalled(job: Job) -> Answer:
    """Send to a server that never answers until the memory is full, then measure the retries for ``seconds``."""
    logs, kept = itertools.cycle(logs_of(job.shape)), []
    with opened(job, drain_timeout_ms=0, max_block_ms=300, linger_ms=500, retries=2**40) as (producer, streams):
        in_turn, end = itertools.cycle(streams), time.monotonic() + float(job.options["seconds"])

        def fill() -> int:
            full = False
            while not full or time.monotonic() < end:
                try:
                    kept.append(next(in_turn).send(next(logs)))
                except SendTimeoutError:
                    full = True
            return producer.stats().delivered

        answer, stats = timed(fill), producer.stats()
        answer.figures.update(used=stats.memory_used, accepted=stats.accepted)
        with suppress(CloseTimeoutError):  # the server answers no request
            producer.close(timeout=1)
        return answer


WAYS: dict[str, Callable[[Job], Answer]] = {
    "send": send,
    "kept": kept,
    "send_callback": send_callback,
    "send_many": send_many,
    "send_arrow": send_arrow,
    "send_lines": send_lines,
    "durable": durable,
    "idle": idle,
    "dead": dead,
    "stalled": stalled,
}

if __name__ == "__main__":
    serve(WAYS)
