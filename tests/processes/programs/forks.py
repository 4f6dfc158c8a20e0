"""Fork with ``os.fork`` in the way that the first argument names; parent and child send and report."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
import threading
import time

from common import new_producer, send, threads_of

from producer import ResultFailedError, SendFuture

mode = sys.argv[1]
producer = new_producer()


def child_sends() -> None:
    """Let the child return from this function and exit normally, as the parent does."""
    send(producer, "child", 300)


def parent_ends(pid: int) -> None:
    send(producer, "later", 300)
    _, status = os.waitpid(pid, 0)
    print(f"child_status={os.waitstatus_to_exitcode(status)}")


def fork_before_first_send() -> None:
    pid = os.fork()
    child_sends() if pid == 0 else parent_ends(pid)


def fork_with_records_pending() -> None:
    send(producer, "early", 300)
    pid = os.fork()
    if pid:
        parent_ends(pid)
        return
    print(f"inherited={producer.stats().accepted} threads={len(threads_of(producer)) - 7}")
    child_sends()


def fork_twice() -> None:
    send(producer, "early", 300)
    pid = os.fork()
    if pid:
        parent_ends(pid)
        return
    child_sends()
    grandchild = os.fork()
    if grandchild:
        os.waitpid(grandchild, 0)
    else:
        send(producer, "grandchild", 300)


def fork_with_futures() -> None:
    """Use the parent's futures in the child in every way that could wait; one is watched before the fork."""
    futures = send(producer, "early", 300)
    futures[0].add_done_callback(lambda _: print(f"told_in={os.getpid()}"))
    watcher = threading.Thread(target=concurrent.futures.wait, args=(futures[:2], 30), daemon=True)
    watcher.start()
    while not futures[1]._waiters:
        time.sleep(0.001)
    pid = os.fork()
    if pid:
        parent_ends(pid)
        return
    started = time.monotonic()
    done, _ = concurrent.futures.wait(futures, timeout=10)
    seen = [future for future in futures if forked_away(future)]
    late: list[object] = []
    for future in futures:
        future.add_done_callback(late.append)
    quick = time.monotonic() - started < 5
    print(f"done={len(done)} raised={len(seen)} called_back={len(late)} quick={int(quick)}")
    child_sends()


def forked_away(future: SendFuture) -> bool:
    with contextlib.suppress(ResultFailedError):
        future.result(timeout=60)
        return False
    return future.exception(timeout=5).result.error_code == "ForkedAway"


def fork_while_threads_send() -> None:
    """Fork eight times; each time a thread missing in the child may hold any lock."""
    stop = threading.Event()
    counts = [0] * 4

    def work(number: int) -> None:
        while not stop.is_set():
            (future,) = send(producer, f"thread{number}-{counts[number]}")
            future.add_done_callback(lambda _: None)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    statuses = [fork_and_send(number, counts) for number in range(8)]
    stop.set()
    for thread in threads:
        thread.join()
    producer.close(20)
    print(f"parent={sum(counts)} failed_children={sum(map(bool, statuses))}")


def fork_and_send(number: int, counts: list[int]) -> int:
    before = sum(counts)
    while sum(counts) < before + 200:  # until the threads are running
        time.sleep(0.001)
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        send(producer, f"child{number}", 50)
        producer.close(20)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001
        print(f"child: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


globals()[mode]()
