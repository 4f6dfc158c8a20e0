"""Send at a rate, and time each call and its outcome."""

import dataclasses
import time
from collections.abc import Callable

from .protocol import Answer, Job, in_threads, paced, quantiles_of, timed

#: The function that a peer calls with an outcome: its first argument is the error, or ``None``.
Callback = Callable[..., None]


def at_rate(
    job: Job, send: Callable[[int, Callback], object], outcomes: list[object], finish: Callable[[], int]
) -> Answer:
    """Run a job with a rate that its threads share evenly; each error or None is appended to ``outcomes``."""
    calls: list[float] = []
    waits: list[float] = []
    clock = time.perf_counter

    def one(number: int) -> None:
        begun = clock()

        def done(error: object, *_: object) -> None:
            waits.append(clock() - begun)
            outcomes.append(error)

        send(number, done)

    def work(_: int) -> None:
        calls.extend(paced(job.count // job.threads, max(1, job.rate // job.threads), one))

    def run() -> int:
        in_threads(job.threads, work)
        return finish()

    answer = timed(run)
    return dataclasses.replace(answer, send_seconds=quantiles_of(calls), ack_seconds=quantiles_of(waits))
