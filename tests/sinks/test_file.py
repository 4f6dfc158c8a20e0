"""FileSink: real files, full disks, other writers."""

import json
import os
import pickle
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producer import ConfigError, NetworkError, Producer, UnreachableError
from producer.model.interfaces import Delivery
from producer.model.records import StreamKey
from producer.sinks import FileSink
from tests.durable.kit import file_channel
from tests.support.pipelines import config, record
from tests.support.waiting import PATIENCE, Call, eventually

KEY = StreamKey("p", "l", "t", "s", None, (("env", "test"),))


def deliver(sink: FileSink, *texts: str, key: StreamKey = KEY) -> None:
    sink.write(Delivery(key, None, sink.encode(key, None, [record(text) for text in texts])))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """Limit the size of this process's files, as if the disk were full: the kernel writes up to the limit."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_line_has_time_project_logstore_topic_source_and_tags_then_the_fields(tmp_path: Path) -> None:
    """A line has time, project, logstore, topic, source and tags, then the fields; empty values are left out."""
    path = tmp_path / "out.jsonl"
    with Producer(sink=FileSink(path), config=config(linger_ms=100)) as producer:
        stream = producer.stream("p", "l", topic="t", tags={"env": "test"})
        assert stream.send({"message": "grüße\n", "n": 7}).result(PATIENCE).successful
        producer.send("p", "other", {"a": "b"}, source="")
    first, second = lines(path)
    assert first.pop("__time__") == pytest.approx(second.pop("__time__"), abs=5)
    assert first.pop("__time_ns_part__") != second.pop("__time_ns_part__")
    assert first == {
        "__project__": "p",
        "__logstore__": "l",
        "__topic__": "t",
        "__source__": "here",
        "__tag__:env": "test",
        "message": "grüße\n",
        "n": "7",
    }
    assert second == {"__project__": "p", "__logstore__": "other", "a": "b"}
    assert path.read_bytes().endswith(b"}\n")


def test_many_threads_write_whole_lines_and_ordered_streams_keep_their_order(tmp_path: Path) -> None:
    """Batches of several IO threads and streams do not mix, and every record is there once."""
    path = tmp_path / "out.jsonl"
    with Producer(
        sink=FileSink(path), config=config(linger_ms=100, batch_count_threshold=7, io_thread_count=4)
    ) as producer:

        def send(topic: str) -> None:
            stream = producer.stream("p", "l", topic=topic, ordered=True)
            for n in range(200):
                stream.send({"n": n, "padding": "x" * 500})

        for call in [Call(lambda topic=topic: send(topic)) for topic in "abcd"]:
            call.result()
    found = lines(path)
    for topic in "abcd":
        assert [int(str(line["n"])) for line in found if line["__topic__"] == topic] == list(range(200))


def test_a_partly_written_batch_is_cut_off_again_and_reported_as_not_stored(tmp_path: Path) -> None:
    """A partly written batch is cut off again and reported as not stored; earlier batches are untouched."""
    path = tmp_path / "out.jsonl"
    sink = FileSink(path)
    deliver(sink, "first")
    before = path.read_bytes()
    with disk_full_at(len(before) + 1000), pytest.raises(UnreachableError, match="File too large") as raised:
        deliver(sink, "x" * 5000)
    assert not raised.value.may_have_been_stored
    assert str(path) in raised.value.message
    assert path.read_bytes() == before


def test_the_producer_retries_and_pauses_sending_to_the_file_meanwhile(tmp_path: Path) -> None:
    """The producer retries, and pauses sending to the file meanwhile."""
    path = tmp_path / "out.jsonl"
    with Producer(sink=FileSink(path), config=config(linger_ms=100, base_retry_backoff_ms=10)) as producer:
        with disk_full_at(1000):
            futures = [producer.send("p", "l", {"n": n, "x": "x" * 2000}) for n in range(3)]
            eventually(lambda: producer.stats().retried)
        assert all(future.result(PATIENCE).successful for future in futures)
    assert [line["n"] for line in lines(path)] == ["0", "1", "2"]


def test_on_a_full_device_that_cannot_be_truncated_the_batch_may_have_been_stored() -> None:
    """On a full device that cannot be truncated, the batch may have been stored."""
    with pytest.raises(NetworkError, match="cannot be removed") as raised:
        deliver(FileSink("/dev/full"), "x")
    assert raised.value.may_have_been_stored
    assert not isinstance(raised.value, UnreachableError)


def test_half_a_line_that_a_dead_process_left_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    """The next batch begins on a line of its own."""
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"__time__": 1, "ha')
    deliver(FileSink(path), "whole")
    half, whole = path.read_text().splitlines()
    assert half == '{"__time__": 1, "ha'
    assert json.loads(whole)["m"] == "whole"


_WRITER = """
import sys
from producer import Producer, ProducerConfig
from producer.sinks import FileSink
with Producer(sink=FileSink(sys.argv[1]), config=ProducerConfig(linger_ms=100, batch_count_threshold=3)) as producer:
    for n in range(300):
        producer.send("p", sys.argv[2], {"n": n, "padding": "x" * 3000})
"""


def test_two_processes_may_write_one_file(tmp_path: Path) -> None:
    """The lines of two processes do not mix, and none is lost."""
    path = tmp_path / "out.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = lines(path)
    for name in "ab":
        assert sorted(int(str(line["n"])) for line in found if line["__logstore__"] == name) == list(range(300))


def test_a_wrong_path_is_refused_at_once(tmp_path: Path) -> None:
    """A directory, or a file in a missing directory, is refused."""
    for wrong in (tmp_path, tmp_path / "nowhere" / "out.jsonl"):
        with pytest.raises(ConfigError, match="path: must be a file in a directory that exists"):
            FileSink(wrong)


def test_a_disk_that_is_unmounted_for_a_while_loses_no_record(tmp_path: Path) -> None:
    """A disk that is unmounted for a while loses no record."""
    place = tmp_path / "mounted"
    place.mkdir()
    with Producer(
        sink=FileSink(place / "out.jsonl"), config=config(linger_ms=100, base_retry_backoff_ms=10)
    ) as producer:
        place.rmdir()
        future = producer.send("p", "l", {"a": "b"})
        eventually(lambda: producer.stats().retried)
        place.mkdir()
        assert future.result(PATIENCE).successful
    assert len(lines(place / "out.jsonl")) == 1


def test_with_fsync_a_delivered_batch_is_on_the_disk_a_failed_sync_cuts_it_off_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``fsync``, a delivered batch is on the disk; a failed sync cuts it off again."""
    path, synced = tmp_path / "out.jsonl", []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(path.read_bytes()))
    deliver(FileSink(path), "quick")
    assert not synced
    deliver(FileSink(path, fsync=True), "safe")
    assert synced == [path.read_bytes()]

    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UnreachableError, match="Input/output error"):
        deliver(FileSink(path, fsync=True), "lost")
    assert synced == [path.read_bytes()]


def test_a_producer_with_a_file_can_be_pickled_and_forked(tmp_path: Path) -> None:
    """The copy and the child write to the same file."""
    path = tmp_path / "out.jsonl"
    with Producer(sink=FileSink(path), config=config(linger_ms=100)) as producer:
        producer.send("p", "l", {"who": "parent"}).result(PATIENCE)
        with pickle.loads(pickle.dumps(producer)) as copy:
            copy.send("p", "l", {"who": "copy"})
        if (child := os.fork()) == 0:
            code = 1
            try:
                code = int(not producer.send("p", "l", {"who": "child"}).result(PATIENCE).successful)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(str(line["who"]) for line in lines(path)) == ["child", "copy", "parent"]


def test_a_channel_before_a_file_sink_is_durable_and_ordered_sequence_numbers_are_ignored(tmp_path: Path) -> None:
    """A channel before a file sink is durable and ordered; sequence numbers are ignored."""
    path = tmp_path / "out.jsonl"
    with Producer(
        sink=FileSink(path), channel=file_channel(tmp_path / "channel"), config=config(linger_ms=100)
    ) as producer:
        stream = producer.stream("p", "l", idempotent=True)
        for n in range(20):
            stream.send({"n": n})
        producer.flush(PATIENCE)
        assert producer.stats().stored == 0
    assert [line["n"] for line in lines(path)] == [str(n) for n in range(20)]
    assert threading.active_count() < 50


def test_a_file_with_a_limit_is_renamed_before_it_exceeds_it(tmp_path: Path) -> None:
    """The file and its one former part stay below the limit, also with several writers; a large batch stands alone."""
    path, former = tmp_path / "out.jsonl", tmp_path / "out.jsonl.1"
    writers = [FileSink(path, max_bytes=1000), FileSink(path, max_bytes=1000)]
    for number in range(40):
        deliver(writers[number % 2], str(number))
        assert path.stat().st_size <= 1000
    assert former.stat().st_size <= 1000
    kept = [int(str(line["m"])) for file in (former, path) for line in lines(file)]
    assert kept == list(range(kept[0], 40))
    assert len(kept) > 7
    deliver(writers[0], "x" * 2000)
    assert [line["m"] for line in lines(path)] == ["x" * 2000]
    deliver(writers[1], "y")
    assert [line["m"] for line in lines(path)] == ["y"]
    assert [line["m"] for line in lines(former)] == ["x" * 2000]
