"""Send in a child of ``multiprocessing`` that returns or fails without flush or close; the parent sends, too."""

from __future__ import annotations

import multiprocessing
import sys

from common import new_producer, send

from producer import Producer, Stream


def with_own_producer(count: int) -> None:
    send(new_producer(), "child", count)


def with_given_producer(producer: Producer, count: int) -> None:
    send(producer, "child", count)


def with_given_stream(stream: Stream, count: int) -> None:
    for number in range(count):
        stream.send({"n": f"child-{number}"})


def and_fail(producer: Producer, count: int) -> None:
    send(producer, "child", count)
    raise SystemExit(5)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    producer = new_producer()
    send(producer, "parent", 200)
    stream = producer.stream("my-project", "app-log")
    target, arguments = {
        "own": (with_own_producer, (200,)),
        "given": (with_given_producer, (producer, 200)),
        "stream": (with_given_stream, (stream, 200)),
        "fail": (and_fail, (producer, 200)),
    }[sys.argv[2]]
    child = context.Process(target=target, args=arguments)
    child.start()
    child.join()
    print(f"exitcode={child.exitcode}")
