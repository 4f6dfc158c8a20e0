"""Send from the workers of a process pool, through an inherited or pickled producer, until the pool ends."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import sys

from common import new_producer, send

producer = new_producer()


def work(number: int) -> int:
    send(producer, f"task{number}", 20)
    return number


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        print(f"tasks={len(list(pool.map(work, range(10))))}")
