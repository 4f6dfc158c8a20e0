"""s3: by notifications and listings, each object is read once, whatever its format, also after failures."""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import lzma
import random
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import cramjam
import lz4.frame
import pytest
from botocore.exceptions import ClientError, CredentialRetrievalError, NoCredentialsError
from botocore.parsers import ResponseParserError

from producer.agent import AgentConfigError
from producer.agent.config import parse_toml
from producer.agent.config.extras import extras_of
from producer.agent.config.options import read_options
from producer.agent.events.interfaces import Context, Position, Source
from producer.agent.sources.reading.cutting import Rules
from producer.agent.sources.s3 import S3Source, queue, source
from producer.agent.sources.s3.blocks import blocks_of
from producer.agent.sources.s3.bucket import Bucket
from producer.agent.sources.s3.clients import DeniedError, FailedError, S3Error, UnreadableError, clients_of, translated
from producer.agent.sources.s3.feeds import MOST_UNSAFE
from producer.agent.sources.s3.notifications import NotificationError, ObjectRef, objects_of
from producer.agent.sources.s3.objects import WHOLE
from producer.agent.sources.s3.queue import Queue
from producer.agent.sources.s3.reader import Outcome
from producer.agent.testing import RecordingOutlet, SourceConformance
from producer.cli import main
from producer.testing import ManualClock
from producer.wire.log_start import Logs, StartPattern
from producer.wire.zstd import zstd
from tests.support.remote_servers import ACCESS_KEY, SECRET_KEY
from tests.support.waiting import eventually, passed

from .cloud import Cloud, Proxy, Reading, cloud_server, record

_MIB = 1 << 20
#: Seconds for a stop, far below the read timeout of 30 seconds.
_QUICK = 15
_DAY = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with cloud_server() as cloud:
        yield cloud


@pytest.fixture
def bucket(cloud: Cloud) -> str:
    return cloud.bucket()


@pytest.fixture
def proxy(cloud: Cloud) -> Iterator[Proxy]:
    proxy = Proxy(cloud.url)
    yield proxy
    proxy.close()


def numbered(first: int, count: int) -> list[bytes]:
    return [b"line %06d of an object that has some text" % number for number in range(first, first + count)]


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


# -- a queue


def test_a_message_is_deleted_once_its_objects_are_delivered(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """Objects of notifications are read, with headers, whatever their keys; their message is deleted only after a
    memory channel has delivered their lines; a test event is deleted.
    """
    address = cloud.queue(bucket)
    with Reading(tmp_path, cloud, queue_url=address) as reading:
        cloud.put(bucket, "a b+c/ü.log/", b"one\ntwo")
        eventually(lambda: reading.channel.held > 0)
        assert sum(cloud.waiting(address)) >= 1
        (batch,) = reading.batches()
        assert batch.bodies() == [b"one", b"two"]
        head = cloud.s3.head_object(Bucket=bucket, Key="a b+c/ü.log/")
        etag, when = head["ETag"].strip('"'), head["LastModified"].isoformat()
        wanted = {"bucket": bucket, "key": "a b+c/ü.log/", "etag": etag, "size": "7", "last_modified": when}
        assert batch.shared == wanted
        eventually(lambda: cloud.waiting(address) == (0, 0))
        assert reading.counters.get("ObjectReadCount") == 1


_RECORD = record("b", "a+b%2Bc.log")
_MESSAGES: dict[str, tuple[object, list[ObjectRef]]] = {
    "plain": ({"Records": [_RECORD]}, [ObjectRef("b", "a b+c.log")]),
    "several": ({"Records": [_RECORD, record("d", "e")]}, [ObjectRef("b", "a b+c.log"), ObjectRef("d", "e")]),
    "version": ({"Records": [record("b", "k", versionId="v1")]}, [ObjectRef("b", "k", "v1")]),
    "removed": ({"Records": [record("b", "k", "ObjectRemoved:Delete"), _RECORD]}, [ObjectRef("b", "a b+c.log")]),
    "minio": ({"EventName": "x", "Records": [record("b", "c%2Fk", "s3:ObjectCreated:Put")]}, [ObjectRef("b", "c/k")]),
    "sns": ({"Type": "Notification", "Message": json.dumps({"Records": [_RECORD]})}, [ObjectRef("b", "a b+c.log")]),
    "sns test": ({"Type": "Notification", "Message": json.dumps({"Event": "s3:TestEvent"})}, []),
    "bridge": (
        {"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "a+%2B", "size": 1}}},
        [ObjectRef("b", "a+%2B")],
    ),
    "bridge by sns": (
        {
            "Type": "Notification",
            "Message": json.dumps(
                {"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "k"}}}
            ),
        },
        [ObjectRef("b", "k")],
    ),
    "bridge removed": ({"detail-type": "Object Deleted", "detail": {}}, []),
    "test": ({"Service": "Amazon S3", "Event": "s3:TestEvent"}, []),
}


@pytest.mark.parametrize("name", _MESSAGES)
def test_notifications_are_read_in_every_envelope(name: str) -> None:
    """Created objects are found in plain notifications, and in those by SNS and EventBridge; other events have none."""
    message, wanted = _MESSAGES[name]
    assert objects_of(json.dumps(message)) == wanted


_GARBAGE = [
    *("", "{", "[]", "1", "null", '"Records"', "{}", "[" * 100_000, '{"Records": 1}', '{"Records": [1]}'),
    *('{"Records": [{"eventName": 1, "s3": {}}]}', '{"Type": "Notification", "Message": "text"}'),
    *(json.dumps({"Records": [record("b", key)]}) for key in (1, None, "", "\ud800", ["k"])),
    '{"detail-type": "Object Created", "detail": []}',
    '{"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": "b", "object": "k"}}]}',
]


def test_garbage_is_left_to_the_queue(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """Messages that are not notifications are refused, counted, and stay in the queue for its redrive policy, as do
    those of objects whose names no bucket can have; later messages are read.
    """
    for text in _GARBAGE:
        with pytest.raises(NotificationError):
            objects_of(text)
    address = cloud.queue()
    cloud.put(bucket, "good", b"good\n")
    for text in (*_GARBAGE[1:4], json.dumps({"Records": [record("no bucket/..", "k" * 2000)]})):
        cloud.send(address, text)
    cloud.send(address, {"Records": [record(bucket, "good")]})
    with Reading(tmp_path, cloud, queue_url=address) as reading:
        assert reading.lines(1) == [b"good"]
        eventually(lambda: cloud.waiting(address) == (0, 4))
        eventually(lambda: reading.counters.get("EventReadFail") == 4)


def test_an_object_of_several_notifications_is_read_once(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """A repeated notification of an object reads nothing and is deleted, also after a restart; a replaced object is
    read again.
    """
    address = cloud.queue(bucket)
    cloud.put(bucket, "a", b"one\n")
    again = {"Records": [record(bucket, "a")]}
    with Reading(tmp_path, cloud, queue_url=address, disk=True) as reading:
        cloud.send(address, again)
        assert reading.lines(1) == [b"one"]
        eventually(lambda: cloud.waiting(address) == (0, 0) or cloud.waiting(address) == (0, 1))
        reading.restart()
        cloud.send(address, again)
        cloud.put(bucket, "b", b"b\n")
        assert reading.lines(1) == [b"b"]
        cloud.put(bucket, "a", b"two\n")
        assert reading.lines(1) == [b"two"]


def test_names_of_objects_are_remembered_up_to_a_limit(
    cloud: Cloud, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last objects are remembered, so the state does not grow."""
    monkeypatch.setattr(queue, "_MOST_KNOWN", 3)
    address = cloud.queue(bucket)
    with Reading(tmp_path, cloud, queue_url=address, workers=1) as reading:
        for number in range(6):
            cloud.put(bucket, str(number), b"%d\n" % number)
        reading.lines(6)
        eventually(lambda: len(reading.outlet.names()) == 3)


def test_agents_share_a_queue(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """Two agents on one queue read each object once, together."""
    address = cloud.queue(bucket)
    for number in range(20):
        cloud.put(bucket, str(number), joined(numbered(100 * number, 10)))
    found: list[bytes] = []
    with ExitStack() as ends:
        readings = [ends.enter_context(Reading(tmp_path / str(n), cloud, queue_url=address)) for n in range(2)]

        def enough() -> bool:
            found.extend(body for each in readings for batch in each.batches() for body in batch.bodies())
            return cloud.waiting(address) == (0, 0)

        eventually(enough)
        enough()  # batches that came after the last look at them
    assert sorted(found) == [line for number in range(20) for line in numbered(100 * number, 10)]


def test_a_message_stays_invisible_while_its_objects_are_not_safe(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """The visibility timeout is extended at half of it, until the objects are safe."""
    address = cloud.queue()
    cloud.send(address, {"Records": [record(bucket, "a")]})
    clock, outlet, extended = ManualClock(), RecordingOutlet(), []
    change = cloud.sqs.change_message_visibility_batch

    class Client:
        def __getattr__(self, name: str) -> Any:
            return getattr(cloud.sqs, name)

        def change_message_visibility_batch(self, **given: Any) -> Any:
            extended.extend(each["VisibilityTimeout"] for each in given["Entries"])
            return change(**given)

    options = read_options(S3Source.Options, {"queue_url": address, "wait": 1, "visibility_timeout": 100}, "s")
    made = Queue(Client(), options, Context("a", "t", tmp_path, clock=clock), outlet, None)  # type: ignore[arg-type]
    assert next(made.tasks(())) is not None
    for _ in range(4):
        clock.advance(30)
        made.maintain()
    assert extended == [100, 100]
    made.release()
    assert (extended[-1], cloud.waiting(address)) == (0, (1, 0))


def test_a_stop_in_the_middle_gives_the_message_back(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """A clean stop in the middle of an object returns its message at once, and the next start continues at the
    position.
    """
    address = cloud.queue(bucket)
    lines = numbered(0, 100_000)
    cloud.put(bucket, "large", joined(lines))
    with Reading(tmp_path, cloud, queue_url=address, disk=True, max_line_bytes=4096) as reading:
        eventually(lambda: reading.channel.held > 0)
        reading.end()
        found = [body for batch in reading.batches() for body in batch.bodies()]
        assert 0 < len(found) < len(lines)
        assert cloud.waiting(address) == (1, 0)
        reading.restart()
        assert found + reading.lines(len(lines) - len(found)) == lines
        eventually(lambda: cloud.waiting(address) == (0, 0))


# -- a bucket


def test_a_bucket_is_polled_and_each_object_read_once(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """Objects of a prefix are read in the order of their keys, later and replaced ones too, and none twice, also after
    a restart; the names of deleted and replaced ones are forgotten.
    """
    for key in ("x/b", "x/a", "y/c", "x/skip.tmp", "x/empty"):
        cloud.put(bucket, key, b"" if key == "x/empty" else f"{key}\n".encode())
    options = {"bucket": bucket, "prefix": "x/", "ignore_pattern": r"\.tmp$", "workers": 1}
    with Reading(tmp_path, cloud, disk=True, **options) as reading:
        assert reading.lines(2) == [b"x/a", b"x/b"]
        cloud.put(bucket, "x/0", b"before\n")
        assert reading.lines(1) == [b"before"]
        cloud.put(bucket, "x/a", b"replaced\n")
        assert reading.lines(1) == [b"replaced"]
        cloud.s3.delete_object(Bucket=bucket, Key="x/b")
        eventually(lambda: len(reading.outlet.names()) == 2)
        reading.restart()
        cloud.put(bucket, "x/z", b"last\n")
        assert reading.lines(1) == [b"last"]


def test_a_listing_begins_before_the_last_look_back_keys(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """A listing begins before the last ``look_back`` keys: a new key before them is not seen, one among them is; also
    after a restart, and without the names of objects before the marker.
    """
    for number in range(10):
        cloud.put(bucket, f"k{number}", b"%d\n" % number)
    with Reading(tmp_path, cloud, bucket=bucket, look_back=3, workers=1) as reading:
        assert reading.lines(10) == [b"%d" % number for number in range(10)]
        eventually(lambda: len(reading.outlet.names()) == 3)
        for again in (False, True):
            if again:
                reading.restart()
            cloud.put(bucket, f"k1{again}", b"too early\n")
            cloud.put(bucket, f"k75{again}", b"among\n")
            assert reading.lines(1) == [b"among"]
    marker = json.loads((tmp_path / "state/t/marker.json").read_bytes())
    assert marker["after"] >= "k6"


def test_a_listing_of_very_many_objects_keeps_the_names_of_few(tmp_path: Path) -> None:
    """While a listing is read, only names of objects behind the marker are kept, however many objects it has."""
    page = {"Contents": [{"Key": f"k{n:05}", "Size": 1, "ETag": '"e"', "LastModified": _DAY} for n in range(5000)]}
    client = SimpleNamespace(list_objects_v2=lambda **_: page)
    options, outlet = read_options(S3Source.Options, {"bucket": "b", "look_back": 10}, "sources.s"), RecordingOutlet()
    made = Bucket(client, options, Context("a", "t", tmp_path, clock=ManualClock()), outlet)
    read = most = 0
    for task in made._listing():
        assert task is not None
        names = made._tasks[task.key].names
        outlet.pass_over(Position(names[0], WHOLE))
        made.done(task, Outcome(names, whole=True))
        read, most = read + 1, max(most, len(made._seen))
    assert read == 5000
    assert most <= 10 + MOST_UNSAFE


def test_a_crash_while_the_marker_moves_repeats_no_object(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """The marker is stored before names are forgotten, so a crash between the two repeats no object."""
    for number in range(6):
        cloud.put(bucket, f"k{number}", b"%d\n" % number)
    with Reading(tmp_path, cloud, bucket=bucket, look_back=2, disk=True) as reading:
        outlet = reading.outlet
        outlet.forget = lambda _name: 1 / 0  # type: ignore[method-assign, return-value, assignment]
        assert sorted(reading.lines(6)) == [b"%d" % number for number in range(6)]
        assert reading.run is not None
        with pytest.raises(ZeroDivisionError):
            reading.run.result()
        reading.run = None
        reading.restart()
        cloud.put(bucket, "k9", b"9\n")
        assert reading.lines(1) == [b"9"]


def test_an_object_that_is_replaced_after_its_listing_is_read_once(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """An object's current content is read once, also if the listing had an older one."""
    cloud.put(bucket, "a", b"old\n")
    with ExitStack() as ends:
        reading = Reading(tmp_path, cloud, bucket=bucket, disk=True)
        outlet_ends, asked = reading.outlet.ends, list[str]()

        def replacing(name: str) -> Any:
            asked.append(name)
            if len(asked) == 1:
                cloud.put(bucket, "a", b"new\n")
            return outlet_ends(name)

        reading.outlet.ends = replacing  # type: ignore[method-assign]
        ends.enter_context(reading)
        assert reading.lines(1) == [b"new"]
        before = len(asked)
        eventually(lambda: len(asked) > before + 3, "further listings")
        cloud.put(bucket, "b", b"b\n")
        assert reading.lines(1) == [b"b"]


def test_the_first_start_begins_after_a_key(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """``start_after`` skips the objects up to a key; a marker of another bucket is ignored."""
    for key in ("a", "b", "c"):
        cloud.put(bucket, key, f"{key}\n".encode())
    state = tmp_path / "state/t"
    state.mkdir(parents=True)
    (state / "marker.json").write_text(json.dumps({"bucket": "other", "prefix": "", "after": "zzz"}))
    with Reading(tmp_path, cloud, bucket=bucket, start_after="a", workers=1) as reading:
        assert reading.lines(2) == [b"b", b"c"]


# -- objects


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data[: len(data) // 3]) + gzip.compress(data[len(data) // 3 :]),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size" + zstd.compress(data),
    "lz4": lz4.frame.compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress(data)),
}


def test_compressed_objects_are_read_and_continued_inside(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """Objects of each compression are read whatever their names; a source that was stopped within them continues at
    its line.
    """
    lines = {kind: numbered(1_000_000 * n, 40_000) for n, kind in enumerate(_PACKED)}
    for kind, pack in _PACKED.items():
        cloud.put(bucket, f"{kind}.txt", pack(joined(lines[kind])), ContentEncoding="gzip" if kind == "gzip" else "")
    found: list[bytes] = []
    with Reading(tmp_path, cloud, bucket=bucket, disk=True, max_line_bytes=65536, workers=7) as reading:
        for _ in range(3):
            eventually(lambda: reading.channel.held > 0)
            reading.end()
            found += [body for batch in reading.batches() for body in batch.bodies()]
            reading.restart()
        found += reading.lines(7 * 40_000 - len(found))
    assert sorted(found) == sorted(line for each in lines.values() for line in each)


def test_what_cannot_be_decompressed_does_not_stop_later_objects(
    cloud: Cloud, bucket: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a damaged object all bytes before the damage are read; it is counted, logged, and passed over, as is one of
    an unsupported Content-Encoding, and later objects are read; with a queue their messages stay.
    """
    data = gzip.compress(joined(numbered(0, 100_000)))[:-4]
    cloud.put(bucket, "a", data)
    cloud.put(bucket, "b", b"brotli", ContentEncoding="br")
    cloud.put(bucket, "c", b"last\n")
    with Reading(tmp_path / "listed", cloud, bucket=bucket, workers=1) as reading, caplog.at_level(logging.ERROR):
        found: list[bytes] = []

        def ended() -> bool:
            found.extend(body for batch in reading.batches() for body in batch.bodies())
            return found[-1:] == [b"last"]

        eventually(ended)
        assert found == [*numbered(0, 100_000), b"last"]
        assert reading.counters.get("EventReadFail") == 2
        assert len([each for each in caplog.messages if f"s3://{bucket}/a: damaged or incomplete gzip" in each]) == 1
        assert any("Content-Encoding br is not supported" in each for each in caplog.messages)
    address = cloud.queue()
    cloud.send(address, {"Records": [record(bucket, "b"), record(bucket, "c")]})
    with Reading(tmp_path / "queued", cloud, queue_url=address) as reading:
        assert reading.lines(1) == [b"last"]
        eventually(lambda: reading.counters.get("EventReadFail") == 1)
    assert cloud.waiting(address) == (0, 1)


def test_a_bomb_takes_bounded_memory(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """A small object that becomes 200 MiB without a line end is read in bounded memory, in parts."""
    cloud.put(bucket, "bomb", gzip.compress(b"x" * (200 * _MIB), 9))

    class Outlet(RecordingOutlet):
        size = 0

        def put(self, batch: Any, *_: object, **__: object) -> None:
            self.size += batch.size - batch.count  # without line ends

    outlet = Outlet()
    with Reading(tmp_path, cloud, bucket=bucket, outlet=outlet, max_line_bytes=_MIB) as reading:
        tracemalloc.start()
        eventually(lambda: reading.counters.get("ObjectReadCount") == 1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert outlet.size == 200 * _MIB
    assert peak < 24 * _MIB


def test_a_broken_connection_continues_at_its_byte(cloud: Cloud, bucket: str, tmp_path: Path, proxy: Proxy) -> None:
    """After connections that break, and end early, an object is requested from the byte that was read last."""
    lines = numbered(0, 20_000)
    cloud.put(bucket, "a", joined(lines))
    cloud.put(bucket, "b.gz", gzip.compress(joined(lines), 1))
    proxy.cuts = [300_000, 1000, 100_000, None, 50_000]
    with Reading(tmp_path, cloud, bucket=bucket, endpoint_url=proxy.url, workers=1) as reading:
        assert reading.lines(40_000) == lines + lines
    assert len(proxy.ranges) == 6
    firsts = [int(each.removeprefix("bytes=").rstrip("-") or 0) for each in proxy.ranges]
    assert firsts[:1] == firsts[4:5] == [0]
    assert 200_000 < firsts[1] <= firsts[2] < firsts[3]


def test_a_stop_leaves_a_request_without_an_answer_behind(
    cloud: Cloud, bucket: str, tmp_path: Path, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """If the peer is silent in the middle of an object, or never answers, a stop waits a second or two, not for the
    read timeout; a later run reads the whole object.
    """
    lines, silent, ended = numbered(0, 100_000), threading.Event(), threading.Event()
    cloud.put(bucket, "a", joined(lines))
    proxy.cuts, proxy.hook = [700_000], lambda: silent.set() or passed(ended)
    with Reading(tmp_path, cloud, bucket=bucket, endpoint_url=proxy.url, workers=1) as reading:
        passed(silent)
        began = time.monotonic()
        reading.end()
        assert time.monotonic() - began < _QUICK
        found = [body for batch in reading.batches() for body in batch.bodies()]
        reading.restart()
        assert found + reading.lines(len(lines) - len(found)) == lines
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        for given in ({"bucket": bucket, "endpoint_url": url}, {"queue_url": f"{url}/1/q"}):
            with Reading(tmp_path / "silent", cloud, **given) as reading:
                connection, _ = server.accept()
                with connection:
                    assert connection.recv(1)
                    began = time.monotonic()
                    reading.end()
                    assert time.monotonic() - began < _QUICK
    ended.set()
    assert [each for each in caplog.messages if "left a request of S3 or SQS behind" in each][1:]


@pytest.mark.parametrize("change", ["replaced", "deleted"])
def test_an_object_that_changes_while_it_is_read_is_counted_and_read_anew(
    cloud: Cloud, bucket: str, tmp_path: Path, proxy: Proxy, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An object that is replaced or deleted while it is read is logged and counted; what replaced it is read, and so
    are later objects.
    """
    old = numbered(0, 100_000)
    cloud.put(bucket, "a", joined(old))
    cloud.put(bucket, "b", b"last\n")

    def hook() -> None:
        if change == "replaced":
            cloud.put(bucket, "a", b"new\n")
        else:
            cloud.s3.delete_object(Bucket=bucket, Key="a")

    proxy.cuts, proxy.hook = [_MIB + 300_000], hook
    with Reading(tmp_path, cloud, bucket=bucket, endpoint_url=proxy.url, workers=1) as reading:
        found: set[bytes] = set()
        wanted = {b"last", b"new"} if change == "replaced" else {b"last"}

        def ended() -> bool:
            found.update(body for batch in reading.batches() for body in batch.bodies())
            return wanted <= found

        eventually(ended)
        assert len(found) < len(old)
        assert reading.counters.get("ObjectGoneCount") == 1
    assert any(f"s3://{bucket}/a: " in each for each in caplog.messages)


def test_an_object_that_was_read_in_part_is_requested_from_its_position(
    cloud: Cloud, bucket: str, tmp_path: Path, proxy: Proxy
) -> None:
    """The next start requests only the bytes of an uncompressed object that were not read."""
    lines = numbered(0, 100_000)
    cloud.put(bucket, "a", joined(lines))
    options = {"bucket": bucket, "endpoint_url": proxy.url, "max_line_bytes": 65536}
    with Reading(tmp_path, cloud, disk=True, **options) as reading:
        eventually(lambda: reading.channel.held > 0)
        reading.end()
        found = [body for batch in reading.batches() for body in batch.bodies()]
        reading.restart()
        assert found + reading.lines(len(lines) - len(found)) == lines
    assert proxy.ranges[-1] == f"bytes={len(joined(found))}-"


_TEXT = "one\ntwo \u00fc\n\n  more\nlonger line " + "x" * 50 + "\nlast"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("start", [None, r"\S"])
def test_lines_do_not_depend_on_pieces_and_positions(encoding: str, start: str | None) -> None:
    """Blocks of lines and multi-line events join to the same events, whatever pieces arrive, wherever reading
    continues, and wherever other channels' positions end a block.
    """
    chance = random.Random(4)
    data = _TEXT.encode(encoding)
    logs = None if start is None else Logs(StartPattern(start), 1 << 20)
    rules = Rules(logs, 1 << 20, 0, 0, encoding=encoding, final=True)

    def ends(start: int, stops: list[int]) -> list[tuple[int, bytes]]:
        rest = data[start:]

        def read(size: int) -> bytes:
            nonlocal rest
            piece = chance.randrange(1, size + 1)
            part, rest = rest[:piece], rest[piece:]
            return part

        return [(block.start, block.data) for block in blocks_of(read, data[:4], rules, start, stops)]

    (whole,) = ends(0, [])
    assert whole == (0, data)
    cuts = [0]
    order = "utf-16-le" if encoding == "utf-16" else encoding
    for line in _TEXT.split("\n")[:-1]:
        cuts.append(cuts[-1] + len(f"{line}\n".encode(order)) + (2 if encoding == "utf-16" and len(cuts) == 1 else 0))
    for cut in cuts[1:]:
        assert ends(cut, []) == [(cut, data[cut:])]
        blocks = ends(0, [cut])
        assert (b"".join(block for _, block in blocks), cut in dict(blocks)) == (data, True)
        assert len(blocks) == 2 or start is not None
        assert ends(cut, [cut, WHOLE]) == [(cut, data[cut:])]


def test_objects_are_split_into_events_as_files_are(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """Multi-line events, delimiters, encodings and long lines are as for files; a byte order mark is in no event."""
    cloud.put(bucket, "a", b"2026 one\n at x\n2026 two\n at y")
    with Reading(tmp_path / "1", cloud, bucket=bucket, multiline_start=r"\d{4}") as reading:
        assert reading.lines(2) == [b"2026 one\n at x", b"2026 two\n at y"]
    cloud.put(bucket, "a", b"one;two\nmore;")
    with Reading(tmp_path / "2", cloud, bucket=bucket, delimiter=";") as reading:
        assert reading.lines(2) == [b"one", b"two\nmore"]
    cloud.put(bucket, "a", "eins \u00fc\nzwei".encode("utf-16"))
    with Reading(tmp_path / "3", cloud, bucket=bucket, encoding="utf-16") as reading:
        assert reading.lines(2) == ["eins \u00fc".encode(), b"zwei"]
    cloud.put(bucket, "a", b"\xef\xbb\xbfone\n" + b"x" * 5000 + b"\ntwo\n")
    with Reading(tmp_path / "4", cloud, bucket=bucket, max_line_bytes=2048, headers=["key"]) as reading:
        assert list(map(len, reading.lines(5))) == [3, 2048, 2048, 904, 3]
    sample = S3Source.decode_sample(read_options(S3Source.Options, {"bucket": "b"}, "s"), b"one\ntwo", ManualClock())
    assert sample.bodies() == [b"one", b"two"]


# -- errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket": "no-such-bucket"}, "s3://no-such-bucket: NoSuchBucket: .*check bucket"),
        ({"queue_url": "{url}/123456789012/no-such-queue"}, "/no-such-queue: .*NonExistentQueue.*check queue_url"),
        ({"bucket": "b-1", "endpoint_url": "http://127.0.0.1:1"}, "s3://b-1: Could not connect to the endpoint URL"),
        ({"bucket": "b-1", "profile": "absent"}, "AWS's configuration: The config profile .absent. could not be found"),
    ],
)
def test_a_missing_bucket_queue_server_or_profile_ends_the_run_soon(
    cloud: Cloud, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    """A missing bucket, queue, server or profile ends the run soon with the reason, without secrets."""
    given = {name: text.format(url=cloud.url) for name, text in options.items()}
    reading = Reading(tmp_path, cloud, **given)
    with pytest.raises(S3Error, match=words) as caught:
        S3Source(reading.options, Context("a", "t", tmp_path)).run(reading.outlet, reading.stop)
    assert SECRET_KEY not in f"{caught.value}{reading.options}"
    with pytest.raises(S3Error, match=words):
        S3Source.ask(reading.options)
    reading.channel.close()


def test_check_connect_asks_the_bucket_or_the_queue_and_takes_no_message(
    cloud: Cloud, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check --connect` says whether the bucket or queue can be used; a message in the queue stays there."""
    queue_url = cloud.queue(bucket)
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"1\n")
    keys = f'access_key_id = "{ACCESS_KEY}"\nsecret_access_key = "{SECRET_KEY}"\nendpoint_url = "{cloud.url}"'
    given = {"one": f'bucket = "{bucket}"', "two": f'queue_url = "{queue_url}"', "three": 'bucket = "absent"'}
    sources = (
        f'[sources.{name}]\ntype = "s3"\nchannels = ["c"]\nregion = "us-east-1"\n{keys}\n{line}\n'
        for name, line in given.items()
    )
    rest = '[channels.c]\ntype = "memory"\n[sinks.n]\ntype = "null"\nchannel = "c"\n'
    (path := tmp_path / "agent.toml").write_text("".join(sources) + rest)
    assert main(["agent", "check", "--config", str(path), "--connect"]) == 1
    said = capsys.readouterr()
    assert f"sources.one (s3): s3://{bucket} can be listed" in said.out
    assert f"sources.two (s3): {queue_url} answers" in said.out
    assert "sources.three (s3): s3://absent: NoSuchBucket" in said.err
    attributes = {"QueueUrl": queue_url, "AttributeNames": ["ApproximateNumberOfMessages"]}
    assert int(cloud.sqs.get_queue_attributes(**attributes)["Attributes"]["ApproximateNumberOfMessages"]) >= 1


def test_an_error_names_the_permission_that_a_key_lacks(cloud: Cloud, bucket: str, tmp_path: Path) -> None:
    """A key without a permission ends the run with its name; a wrong key with the options to check; a wrong clock with
    that.
    """
    advice = {
        "AccessDenied": "permission s3:GetObject",
        "SignatureDoesNotMatch": "secret_access_key",
        "RequestTimeTooSkewed": "set this machine's clock",
    }
    for code, words in advice.items():
        with pytest.raises(DeniedError, match=words), translated("s3://b/k", "s3:GetObject"):
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetObject")
    with pytest.raises(DeniedError, match="no credentials; set access_key_id"), translated("s3://b"):
        raise NoCredentialsError
    for status, denied in ((400, True), (405, True), (429, False), (503, False)):
        response = {"Error": {"Code": "Other"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        with pytest.raises(S3Error) as caught, translated("s3://b/k"):
            raise ClientError(response, "GetObject")  # type: ignore[arg-type]
        assert isinstance(caught.value, DeniedError) == denied


_REFUSALS = {
    "credentials": (CredentialRetrievalError(provider="iam-role", error_msg="timeout"), S3Error, "iam-role"),
    "denied": (ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject"), DeniedError, "s3:GetObject"),
    "failed": (
        ClientError(
            {"Error": {"Code": "InternalError"}, "ResponseMetadata": {"HTTPStatusCode": 500}},
            "GetObject",
        ),
        FailedError,
        "InternalError",
    ),
    "answer": (ResponseParserError("invalid XML"), S3Error, "not that of S3"),
}


@pytest.mark.parametrize("kind", _REFUSALS)
def test_an_object_that_is_refused_for_a_time_is_not_passed_over(
    cloud: Cloud, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """While credentials cannot be renewed, an object is denied or fails, or an answer is not that of S3, the run
    ends with an error in words, but no object is passed over: the next run reads it. An object that is denied, or
    fails, holds up no other one.
    """
    refusal, error, words = _REFUSALS[kind]
    refused = {f"/{bucket}/b"}

    def refusing(options: Any) -> Any:
        s3, sqs = clients_of(options)

        def refuse(params: Any, **_: object) -> None:
            if urlsplit(params["url"]).path in refused:
                raise refusal

        s3.meta.events.register("before-call.s3.GetObject", refuse)
        return s3, sqs

    monkeypatch.setattr(source, "clients_of", refusing)
    for key in "abc":
        cloud.put(bucket, key, f"{key}\n".encode())
    with Reading(tmp_path, cloud, bucket=bucket, workers=1) as reading:
        run, reading.run = reading.run, None
        assert run is not None
        with pytest.raises(error, match=words):
            run.result()
        first = [body for batch in reading.batches() for body in batch.bodies()]
        assert first == ([b"a", b"c"] if kind in ("denied", "failed") else [b"a"])
        refused.clear()
        reading.restart()
        assert sorted([*first, *reading.lines(3 - len(first))]) == [b"a", b"b", b"c"]


def test_an_object_that_only_its_writer_can_decrypt_is_passed_over() -> None:
    """An object with a key of its writer (SSE-C) is as one that is damaged: later objects are read."""
    error = ClientError({"Error": {"Code": "InvalidRequest"}}, "GetObject")
    with pytest.raises(UnreadableError), translated("s3://b/k"):
        raise error


def test_wrong_options_are_refused() -> None:
    """Neither bucket nor queue, both, options of the other one, half a key, and wrong texts are refused."""
    for options, name in (
        ({}, "bucket"),
        ({"bucket": "b", "queue_url": "http://h/q"}, "bucket"),
        ({"bucket": "b", "wait": 3}, "wait"),
        ({"queue_url": "http://h/q", "look_back": 3}, "look_back"),
        ({"queue_url": "h/q"}, "queue_url"),
        ({"bucket": "b", "endpoint_url": "http://u:p@h"}, "endpoint_url"),
        ({"bucket": "b", "access_key_id": "k"}, "access_key_id"),
        ({"bucket": "b", "headers": ["other"]}, "headers"),
        ({"bucket": "b", "include_pattern": "("}, "include_pattern"),
        ({"bucket": "b", "encoding": "utf-17"}, "encoding"),
    ):
        with pytest.raises(AgentConfigError) as caught:
            read_options(S3Source.Options, options, "s")
        assert [problem.key for problem in caught.value.problems] == [name], options
    found = read_options(S3Source.Options, {"queue_url": "https://sqs.eu-west-3.amazonaws.com/1/q"}, "s")
    assert (found.queues_region, found.queues_endpoint) == ("eu-west-3", "https://sqs.eu-west-3.amazonaws.com")


def test_the_source_needs_the_extra_aws() -> None:
    """The list of a configuration's extras has aws."""
    config = parse_toml(
        '[sources.s]\ntype = "s3"\nbucket = "b"\nchannels = ["c"]\n[channels.c]\ntype = "memory"\n'
        '[sinks.n]\ntype = "null"\nchannel = "c"\n'
    )
    assert extras_of(config) == ["agent", "aws"]


# -- conformance


class _S3Conformance(SourceConformance):
    wrong_options = ({"bucket": "b", "workers": 0}, {"bucket": "b", "endpoint_url": "ftp://x"})
    queued = False

    @pytest.fixture(autouse=True)
    def _stores(self, cloud: Cloud) -> None:
        self._cloud, self._bucket = cloud, cloud.bucket()
        self._queue = cloud.queue(self._bucket) if self.queued else None

    def make(self) -> Source:
        cloud = {"endpoint_url": self._cloud.url, "path_style": True, "region": "us-east-1", "workers": 1}
        keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        where = {"bucket": self._bucket, "poll_delay": 0.01}
        if self._queue:
            where = {"queue_url": self._queue, "wait": 1}
        return S3Source(read_options(S3Source.Options, {**cloud, **keys, **where}, "s"), self.context)

    def feed(self, number: int) -> bytes:
        self._cloud.put(self._bucket, f"{number:03}", b"line %d\n" % number)
        return b"line %d" % number

    def garble(self) -> bool:
        self._cloud.put(self._bucket, "000.gz", b"\x1f\x8b no gzip at all")
        if self._queue:
            self._cloud.send(self._queue, "garbage")
        return True


class TestListed(_S3Conformance):
    """Objects of a bucket."""


class TestQueued(_S3Conformance):
    """Objects of a queue's notifications."""

    queued = True
