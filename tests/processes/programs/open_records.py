"""Fork while another thread seals a batch, or has it open, and holds its lock and the accumulator's."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

mode = sys.argv[1]
if mode == "sealing":  # one step of native code, which cannot be interrupted
    os.environ["PRODUCER_PURE"] = "1"

from common import LOGSTORE, PROJECT, new_producer

from producer.pipeline.batching.open_records import OpenRecords, Sealed

producer = new_producer()
streams = [producer.stream(PROJECT, LOGSTORE) for _ in range(2)]
early = [stream.send({"n": f"early-{side * 150 + n}"}) for side, stream in enumerate(streams) for n in range(150)]
held, forked = threading.Event(), threading.Event()


def hold_lock() -> None:
    assert producer._pipeline is not None
    assert streams[0]._open is not None
    own = getattr(streams[0]._open, "_lock", contextlib.nullcontext())  # only the pure implementation has a lock
    with producer._pipeline.accumulator._lock, own:
        held.set()
        forked.wait(60)


def seal_slowly(records: OpenRecords) -> Sealed:
    held.set()
    forked.wait(60)
    return seal(records)


seal = OpenRecords.seal
if mode == "sealing":
    OpenRecords.seal = seal_slowly  # type: ignore[method-assign]
holder = threading.Thread(target=hold_lock if mode == "open" else producer.flush)
holder.start()
assert held.wait(60)
OpenRecords.seal = seal  # type: ignore[method-assign]
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    sent = [stream.send({"n": f"child-{side * 150 + n}"}) for side, stream in enumerate(streams) for n in range(150)]
    own = all(future._holder.stream is not early[0]._holder.stream for future in sent)  # type: ignore[attr-defined]
    pending = sum(not future.done() for future in sent)
    producer.close(15)
    own = own and all(future.result(0).successful for future in sent)
    abandoned = sum(future.exception(0) is not None for future in early)
    print(f"pending={pending} own={int(own)} abandoned={abandoned}", flush=True)
    os._exit(0)
forked.set()
holder.join()
_, status = os.waitpid(pid, 0)
later = [stream.send({"n": f"later-{side * 150 + n}"}) for side, stream in enumerate(streams) for n in range(150)]
producer.close(15)
print(f"child_status={os.waitstatus_to_exitcode(status)} sent={sum(f.result(0).successful for f in early + later)}")
