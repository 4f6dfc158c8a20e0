"""Interrupt calls of the main thread at random points, some thousand times; then close and count what arrived.

Arguments: minimum number of interrupts, memory in bytes, implementation (native or pure), channel (none, memory or
file). Every log has a unique number, which the final counts use.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from types import FrameType

least, memory, twin, channel = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.environ["PRODUCER_PURE"] = "1" if twin == "pure" else ""

from producer import Producer, ProducerConfig, Stream
from producer.channels import FileChannel, MemoryChannel
from producer.testing import RecordingSink


class Interrupt(BaseException):
    """Raised by the signal handler, like ``KeyboardInterrupt``."""


calling = False


def interrupt(_number: int, frame: FrameType | None) -> None:
    while calling and frame is not None:
        if "/producer/" in frame.f_code.co_filename:
            raise Interrupt
        frame = frame.f_back


#: The interrupts of one producer: each may leave memory of a batch reserved until the close, and it has little.
EACH = 100
sinks: list[RecordingSink] = []
channels = {"none": lambda: None, "memory": MemoryChannel, "file": lambda: FileChannel(tempfile.mkdtemp())}
options = {"linger_ms": 5, "batch_count_threshold": 50, "total_size_in_bytes": memory, "max_block_ms": 20_000}


def opened() -> tuple[Producer, list[Stream]]:
    sinks.append(RecordingSink())
    producer = Producer(sink=sinks[-1], channel=channels[channel](), config=ProducerConfig(**options))
    return producer, [producer.stream("p", "l", topic="a"), producer.stream("p", "l", topic="b", ordered=True)]


def close() -> float:
    """Close the producer, interrupted up to 20 times; return the seconds that it took."""
    global calling  # noqa: PLW0603  # the signal handler reads it
    begun = time.monotonic()
    for attempt in itertools.count():
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.0004) * (attempt < 20))
            calling = True
            producer.close(60)
            calling = False
            break
        except Interrupt:
            calling = False
            interrupts["close"] += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    return time.monotonic() - begun


producer, streams = opened()
chance = random.Random(5)
calls = {
    "send": lambda stream, numbers: [stream.send({"n": str(number)}) for number in numbers],
    "list": lambda stream, numbers: numbers and stream.send([{"n": str(number)} for number in numbers]),
    "many": lambda stream, numbers: stream.send_many([{"n": str(number)} for number in numbers]),
    "result": lambda stream, numbers: [stream.send({"n": str(number)}).result(20) for number in numbers],
    "flush": lambda _stream, _numbers: producer.flush(20),
    "stats": lambda _stream, _numbers: producer.stats(),
}
if importlib.util.find_spec("pyarrow"):
    import pyarrow as pa

    calls["arrow"] = lambda stream, numbers: stream.send_arrow(
        pa.table({"n": pa.array(map(str, numbers), pa.string())})
    )
sizes = {"send": 20, "list": 3, "many": 5, "arrow": 5, "result": 1, "flush": 0, "stats": 0}
names = ["send"] * 15 + ["list", "many", "arrow"] * 5 + ["result", "flush", "stats"]
names = [name for name in names if name in calls]
for call in calls.values():  # complete all lazy imports
    call(streams[0], [])
producer.flush(20)

faulthandler.dump_traceback_later(40, exit=True)  # dump the stacks if it hangs
must, may, interrupts, following, seconds = set[int](), set[int](), Counter[str](), 0, 0.0
signal.signal(signal.SIGALRM, interrupt)
end = time.monotonic() + 60
while interrupts.total() < least and time.monotonic() < end:
    if interrupts.total() >= EACH * len(sinks):
        seconds = max(seconds, close())
        producer, streams = opened()
    name = chance.choice(names)
    numbers = list(range(following, following + sizes[name]))
    following += len(numbers)
    try:
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.0004))
        calling = True
        calls[name](chance.choice(streams), numbers)
        calling = False
        must.update(numbers)
    except Interrupt:
        calling = False
        interrupts[name] += 1
        may.update(numbers)
seconds = max(seconds, close())
records = (record for sink in sinks for record in sink.records())
arrived = Counter(int(number) for record in records for number in re.findall(rb"\n\x01n\x12.(\d+)", record))
print(dict(interrupts), file=sys.stderr)
print(
    f"interrupts={interrupts.total()} closes={interrupts['close']} seconds={seconds:.0f} "
    f"lost={len(must - arrived.keys())} twice={sum(count > 1 for count in arrived.values())} "
    f"unknown={len(arrived.keys() - must - may)} native={int(producer.stats().twin == 'native')}"
)
