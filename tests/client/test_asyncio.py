"""The methods for coroutines never block the event loop."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer import (
    FlushTimeoutError,
    InvalidArgumentError,
    MemoryChannel,
    Producer,
    ProducerClosedError,
    ProducerError,
    SendTimeoutError,
    SequenceKey,
)
from producer.channels import FileChannel
from producer.testing import RecordingSink
from tests.support.pipelines import config
from tests.support.sinks import GatedSink
from tests.support.waiting import PATIENCE, Call, eventually

#: A log that takes most of the memory of :func:`small`.
LARGE = {"m": "x" * 40_000}


@pytest.fixture
def gated() -> Iterator[GatedSink]:
    sink = GatedSink()
    yield sink
    sink.gate.set()


def small(sink: Any, **options: Any) -> Producer:
    """Return a producer whose memory holds one large log."""
    return Producer(sink=sink, config=config(**{"total_size_in_bytes": 60_000, "linger_ms": 1} | options))


def test_a_producer_is_an_asynchronous_context_manager() -> None:
    """The end of the ``async with`` block closes the producer; aflush and aclose do what flush and close do."""

    async def main() -> None:
        async with Producer(sink=sink, config=config(linger_ms=60_000)) as producer:
            await producer.stream("p", "l").asend({"n": 1})
            future = producer.send("p", "l", {"n": 2})
            await producer.aflush(PATIENCE)
            assert future.done()
            producer.send("p", "l", {"n": 3})
        assert producer.closed
        await producer.aclose(1)
        with pytest.raises(ProducerClosedError):
            await producer.stream("p", "l").asend({"n": 4})

    sink = RecordingSink()
    asyncio.run(main())
    assert len(sink.records()) == 3
    assert sink.closed


def test_asend_waits_for_memory_while_other_coroutines_run(gated: GatedSink) -> None:
    """While a server hangs and the memory is full, coroutines run; waiting sends are accepted in the order of their
    calls.
    """

    async def main() -> None:
        async with small(gated) as producer:
            stream = producer.stream("p", "l")
            first = await stream.asend(LARGE)
            waiting = [asyncio.create_task(stream.asend({"n": n} | LARGE)) for n in range(3)]
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            gated.gate.set()
            await first
            for task in waiting:
                assert (await (await task)).successful
            await producer.aflush(PATIENCE)

    asyncio.run(main())
    assert [b"\n\x01n" in record for record in gated.records()] == [False, True, True, True]
    numbers = [record.split(b"\n\x01n\x12\x01")[1][:1] for record in gated.records()[1:]]
    assert numbers == [b"0", b"1", b"2"]


def test_asend_of_a_producer_waits_for_memory_while_other_coroutines_run(gated: GatedSink) -> None:
    """``producer.asend`` takes what ``send`` takes, and waits for memory without blocking the event loop."""

    async def main() -> None:
        async with small(gated) as producer:
            await producer.asend("p", "l", LARGE)
            waiting = asyncio.create_task(
                producer.asend("p", "l", LARGE, topic="t", tags={"k": "v"}, callback=results.append, urgent=True)
            )
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            gated.gate.set()
            assert (await (await waiting)).successful
            with pytest.raises(InvalidArgumentError, match="asend takes a project, a logstore and a log"):
                await producer.asend("p", "l", {}, "topic")  # type: ignore[arg-type]
            await producer.aflush(PATIENCE)

    results: list[Any] = []
    asyncio.run(main())
    assert [result.successful for result in results] == [True]
    assert [(each.key.topic, each.key.tags) for each in gated.deliveries] == [("", ()), ("t", (("k", "v"),))]


def test_asend_and_wait_returns_what_became_of_the_log(gated: GatedSink) -> None:
    """It sends at once and waits for delivery; after its timeout the delivery continues."""

    async def main() -> None:
        async with Producer(sink=gated, config=config(linger_ms=60_000)) as producer:
            stream = producer.stream("p", "l")
            await stream.asend({"n": 0})  # starts the threads, which may take longer than the timeout
            with pytest.raises(TimeoutError):
                await stream.asend_and_wait({"n": 1}, timeout=0.3)
            with pytest.raises(InvalidArgumentError, match="timeout"):
                await stream.asend_and_wait({"n": 1}, timeout=-1)
            gated.gate.set()
            assert (await stream.asend_and_wait({"n": 2}, timeout=PATIENCE)).successful
            assert len(gated.records()) == 3

    asyncio.run(main())


def test_asend_waits_as_long_as_send_would(gated: GatedSink) -> None:
    """asend waits for max_block_ms of the configuration or the handle, and refuses an invalid log at once."""

    async def main() -> None:
        async with small(gated, max_block_ms=20) as producer:
            stream = producer.stream("p", "l")
            await stream.asend(LARGE)
            with pytest.raises(SendTimeoutError):
                await stream.asend(LARGE)
            with pytest.raises(SendTimeoutError):
                await producer.stream("p", "l", max_block_ms=0).asend(LARGE)
            with pytest.raises(InvalidArgumentError):
                await stream.asend({"m": object()})
            with pytest.raises(FlushTimeoutError):
                await producer.aflush(0.01)
            gated.gate.set()

    asyncio.run(main())


def test_if_no_thread_can_start_to_wait_asend_fails_with_an_error_and_a_later_call_tries_again(
    gated: GatedSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no thread can start to wait, asend fails with an error, and a later call tries again."""

    def no_start(thread: threading.Thread) -> None:
        if thread.name.endswith(("-asend", "-aflush")):
            raise RuntimeError("can't start new thread")
        start(thread)

    async def main() -> None:
        async with small(gated, max_block_ms=60_000) as producer:
            stream = producer.stream("p", "l")
            await stream.asend(LARGE)
            monkeypatch.setattr(threading.Thread, "start", no_start)
            with pytest.raises(ProducerError, match=r"no thread .* can't start new thread"):
                await stream.asend(LARGE)
            with pytest.raises(ProducerError, match=r"no thread .* can't start new thread"):
                await producer.aflush()
            monkeypatch.undo()
            waiting = asyncio.create_task(stream.asend(LARGE))
            await asyncio.to_thread(eventually, lambda: producer.stats().waiting_senders)
            gated.gate.set()
            await (await asyncio.wait_for(waiting, PATIENCE))

    start = threading.Thread.start
    asyncio.run(main())
    assert len(gated.records()) == 2


def test_a_closed_producer_ends_the_wait(gated: GatedSink) -> None:
    """Closing the producer ends a wait for memory with an error; a wait that was cancelled before sends nothing."""

    async def main() -> None:
        producer = small(gated, max_block_ms=60_000, drain_timeout_ms=10_000)
        stream = producer.stream("p", "l")
        await stream.asend(LARGE)
        tasks = [asyncio.create_task(stream.asend(LARGE)) for _ in range(2)]
        await asyncio.to_thread(eventually, lambda: producer.stats().waiting_senders)
        tasks[1].cancel()
        closing = asyncio.create_task(producer.aclose(PATIENCE))
        with pytest.raises(ProducerClosedError):
            await tasks[0]
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        gated.gate.set()
        await closing

    asyncio.run(main())
    assert len(gated.records()) == 1


def threads_of(producer: Producer, kind: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == f"{producer.name}-{kind}"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_cancelled_aflush_delays_neither_other_work_on_threads_nor_the_end_of_the_loop(
    gated: GatedSink, *, durable: bool
) -> None:
    """While a server hangs, a cancelled aflush delays neither other work on threads nor the end of the loop."""

    async def main() -> None:
        producer.send("p", "l", {"n": 1})
        for _ in range(40):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.aflush(), 0.001)
        assert await asyncio.to_thread(lambda: "done") == "done"

    producer = Producer(sink=gated, config=config(linger_ms=1), channel=MemoryChannel() if durable else None)
    try:
        Call(lambda: asyncio.run(main())).result()
        eventually(lambda: not threads_of(producer, "aflush"), "no thread that waits")
    finally:
        gated.gate.set()
        producer.close(PATIENCE)
    assert len(gated.records()) == 1


def test_the_loop_does_not_wait_for_a_cancelled_aclose_which_still_delivers_the_accepted_records(
    gated: GatedSink,
) -> None:
    """The loop does not wait for a cancelled aclose, which still delivers the accepted records."""

    async def main() -> None:
        producer.send("p", "l", {"n": 1})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.aclose(), 0.01)

    producer = Producer(sink=gated, config=config(linger_ms=1))
    try:
        Call(lambda: asyncio.run(main())).result()
        assert producer.closed
        assert not gated.records()
    finally:
        gated.gate.set()
    eventually(lambda: not threads_of(producer, "aclose"), "the end of the close")
    assert len(gated.records()) == 1


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_behind_a_channel_records_are_stored_on_threads(tmp_path: Path, kind: str) -> None:
    """With a durable channel, awaited records are in the channel, and are delivered."""
    sink = RecordingSink()
    channel = MemoryChannel() if kind == "memory" else FileChannel(tmp_path / "channel")

    async def main() -> None:
        async with Producer(sink=sink, config=config(linger_ms=1), channel=channel) as producer:
            stream = producer.stream("p", "l")
            futures = await asyncio.gather(*(stream.asend({"n": n}) for n in range(20)))
            for future in futures:
                assert (await future).successful

    asyncio.run(main())
    assert len(sink.records()) == 20


def test_wait_and_gather_take_futures_as_they_are_create_task_and_taskgroup_take_their_outcome() -> None:
    """wait and gather take futures as they are; create_task and TaskGroup take their outcome()."""

    async def main() -> None:
        async with Producer(sink=RecordingSink(), config=config(linger_ms=1)) as producer:
            stream = producer.stream("p", "l")
            done, pending = await asyncio.wait([stream.send({"n": n}) for n in range(3)])  # type: ignore[type-var]
            assert (len(done), len(pending)) == (3, 0)
            assert (await asyncio.create_task(stream.send({"n": 3}).outcome())).successful
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(stream.send({"n": n}).outcome()) for n in range(3)]
            assert all(task.result().successful for task in tasks)

    asyncio.run(main())


@pytest.mark.parametrize("way", ["producer", "stream", "asend", "hurry"])
def test_urgent_records_do_not_linger(way: str) -> None:
    """Urgent records and the open batch of their stream are sent at once; other streams linger."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config(linger_ms=100_000)) as producer:
        # the first batch of a producer is sent soon anyway
        producer.send("p", "l", {"n": "first"}, urgent=True).result(PATIENCE)
        stream = producer.stream("p", "l")
        other = producer.send("p", "other", {"n": 0})
        before = stream.send({"n": 1})
        if way == "producer":
            last = producer.send("p", "l", {"n": 2}, urgent=True)
        elif way == "asend":
            last = asyncio.run(stream.asend({"n": 2}, urgent=True))
        else:
            last = stream.send({"n": 2}, urgent=way == "stream")
            stream.hurry()
        assert last.result(PATIENCE).successful
        assert before.done()
        assert not other.done()


def test_a_piece_of_a_stream_with_a_sequencekey_is_a_batch_of_its_own_a_list_is_one_send() -> None:
    """A piece of a stream with a SequenceKey is a batch of its own; a list is one send."""
    with Producer(sink=RecordingSink(), config=config(linger_ms=100_000)) as producer:
        numbered = producer.stream("p", "l", idempotent=SequenceKey("0" * 31 + "1"))
        assert numbered.send({"n": 1}, urgent=True).result(PATIENCE).successful
        assert producer.stream("p", "l").send([{"n": 1}, {"n": 2}], urgent=True).result(PATIENCE).successful
