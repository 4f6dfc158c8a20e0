"""objects: on a disk, in S3 (moto), and in a file system of fsspec."""

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest
from pyarrow import parquet

from producer.agent.config import parse_flume
from producer.agent.config.options import AgentConfigError, read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Patience, Sink, SinkError
from producer.agent.flow.health import Health
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.run.blueprint import draw
from producer.agent.sinks.objects import ObjectsSink
from producer.agent.sinks.objects.stores import store_of
from producer.agent.testing import SinkConformance, odd_events
from producer.model.errors import ConfigError
from producer.testing import ManualClock
from producer.wire.zstd import zstd
from tests.agent.doubles import context, memory_channel, opened
from tests.support.remote_servers import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.syncs import noted_syncs

TIME = 1_700_000_000_123  # 2023-11-14T22:13:20.123Z


def sink(state: Path, path: object, **options: Any) -> ObjectsSink:
    given = {"path": str(path), "compression": "none", "time_zone": "UTC", **options}
    given = {name: value for name, value in given.items() if value is not None}
    return ObjectsSink(read_options(ObjectsSink.Options, given, "sinks.k"), context(state, "k", ManualClock()))


def numbered(first: int, *bodies: bytes, **headers: str) -> list[EventBatch]:
    """Return batches with numbers, one for each body."""
    return [
        EventBatch.of_lines(body + b"\n", headers).numbered(number, "origin")
        for number, body in enumerate(bodies, first)
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class TestOnADisk(SinkConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._objects = tmp_path / "objects"

    def make(self) -> Sink:
        return sink(self.context.state, self._objects)

    def delivered(self) -> list[bytes]:
        return b"".join(files(self._objects).values()).split() if self._objects.is_dir() else []

    def break_destination(self) -> Callable[[], None]:
        self._objects.write_text("a file in its place")
        return self._objects.unlink


class S3(NamedTuple):
    """A store: fsspec's options, and a client to look into it."""

    storage: dict[str, str]
    files: Any


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as url:
        storage = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": url}
        files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False, **storage)
        files.mkdir("logs")
        yield S3(storage, files)
        files.close_session(files.loop, files._s3)


class TestInS3(SinkConformance):
    """The conformance tests of sinks, with a bucket that is missing for a while."""

    @pytest.fixture(autouse=True)
    def _store(self, s3: S3, request: pytest.FixtureRequest) -> None:
        self._s3, self._bucket = s3, request.node.name.replace("_", "-")[:50].strip("-")
        s3.files.mkdir(self._bucket)

    def make(self) -> Sink:
        return sink(self.context.state, f"s3://{self._bucket}/a", storage=self._s3.storage)

    def delivered(self) -> list[bytes]:
        files = self._s3.files
        return b"".join(files.cat_file(path) for path in sorted(files.find(self._bucket))).split()

    def break_destination(self) -> Callable[[], None]:
        self._s3.files.rmdir(self._bucket)
        return lambda: self._s3.files.mkdir(self._bucket)


@pytest.mark.parametrize("form", ["text", "json", "parquet"])
@pytest.mark.parametrize("path", ["%{host}", "a/%{x}-%{topic}/%{key}", "%Y/%s/%t/%{host}/%{x}%{scope}%{tag}"])
def test_no_header_of_a_path_keeps_others_from_being_written(path: str, form: str, tmp_path: Path) -> None:
    """Long names are shortened and stay distinct; an event without a possible path is dropped alone."""
    folder, odd = tmp_path / "objects", list(odd_events())
    letters = memory_channel(tmp_path, "letters", capacity=10_000)
    with opened(memory_channel(tmp_path)) as channel, opened(letters):
        channel.put(EventBatch.of_events([*odd, ({"host": "web1"}, b"good-1")]))
        channel.put(EventBatch.of_bodies([b"good-2"], {"host": "web1"}))
        made = sink(tmp_path / "state", folder / path, format=form, columns=["host"] if form == "parquet" else None)
        health = Health()
        runner = SinkRunner("k", channel, made, health, dead_letters=letters, most_events=1000, most_bytes=1 << 26)
        while channel.held:
            assert runner.deliver(0), health.counters.last_error
        assert letters.held == 0
    stored = b"".join(files(folder).values())
    assert b"good-1" in stored
    assert b"good-2" in stored


def test_events_of_an_unwritable_path_go_to_the_dead_letters_the_others_are_stored(tmp_path: Path) -> None:
    """Events of an unwritable path go to the dead letters, the others are stored; a failing disk refuses no event."""
    folder, deep = tmp_path / "objects", "/".join(["%{x}"] * 20)
    folder.mkdir()
    (folder / "taken").write_text("a file in its place")
    batch = EventBatch.of_bodies([b"1", b"2", b"3"], columns={"x": ["taken", "n" * 300, "web"]})
    with opened(memory_channel(tmp_path)) as channel, opened(memory_channel(tmp_path, "letters")) as letters:
        channel.put(batch)
        made = sink(tmp_path / "state", f"{folder}/{deep}")
        runner = SinkRunner("k", channel, made, Health(), dead_letters=letters, most_events=1000, most_bytes=1 << 20)
        assert runner.deliver(0)
        assert (channel.held, list(files(folder).values())) == (0, [b"a file in its place", b"3\n"])
        taking = letters.take(10, 1 << 20, 0)
        assert taking is not None
        assert [
            (body, "Errno" in headers["dead_letter_reason"]) for b in taking.batches for headers, body in b.events()
        ] == [
            (b"1", True),
            (b"2", True),
        ]
        taking.commit()
        shutil.rmtree(folder)
        folder.write_text("a file in place of all")
        channel.put(batch)
        assert not runner.deliver(0)
        assert (channel.held, letters.held) == (3, 0)


def test_a_time_beyond_the_calendar_is_none(tmp_path: Path) -> None:
    """An event with a time beyond the calendar gets the time of writing."""
    batch = EventBatch.of_bodies([b"x"], {"timestamp": "253402300799999"})
    sink(tmp_path / "state", f"{tmp_path}/o/%s-%t-%Y").write(numbered(0, b"x", **batch.shared))
    assert list(files(tmp_path / "o").values()) == [b"x\n"]


def test_parquet_in_s3_has_a_column_for_each_header_named(s3: S3, tmp_path: Path) -> None:
    """With columns a Parquet file has the body as text, the named headers as columns, and the others as a map.

    Of a body that is not UTF-8 the bytes are in _rest.
    """
    options = {"format": "parquet", "compression": "snappy", "columns": ["level"], "storage": s3.storage}
    made = sink(tmp_path, "s3://logs/table/day=%Y-%m-%d/host=%{host}", **options)
    batch = EventBatch.of_events(
        [
            ({"host": "h1", "level": "INFO", "timestamp": str(TIME), "n": "1"}, b"one"),
            ({"host": "h1", "timestamp": str(TIME + 1)}, b"two \xff"),
            ({"host": "h2", "timestamp": str(TIME + 86_400_000)}, b"three"),
        ]
    )
    made.write([batch.numbered(7, "origin")])
    made.close()
    found = {
        path.rpartition("/")[0]: parquet.read_table(io.BytesIO(s3.files.cat_file(path))).to_pylist()
        for path in s3.files.find("logs/table")
    }
    first, second = {"host": "h1", "timestamp": str(TIME), "n": "1"}, {"host": "h1", "timestamp": str(TIME + 1)}
    assert found["logs/table/day=2023-11-14/host=h1"] == [
        {"body": "one", "level": "INFO", "headers": list(first.items()), "_rest": None},
        {"body": "two \ufffd", "level": None, "headers": list(second.items()), "_rest": '{"body_base64":"dHdvIP8="}'},
    ]
    assert [row["body"] for row in found["logs/table/day=2023-11-15/host=h2"]] == ["three"]


def test_an_object_whose_answer_was_lost_is_written_again_under_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object whose answer was lost is written again under the same name, also after a crash and on another day."""
    folder, state = tmp_path / "objects", tmp_path / "state"
    first = sink(state, folder / "%Y-%m-%d")

    def lose(path: str, data: bytes) -> None:
        store_of(str(folder), {}).put(path, data)
        raise OSError("no answer")

    monkeypatch.setattr(first._store, "put", lose)
    with pytest.raises(SinkError, match="no answer"):
        first.write(numbered(5, b"a", b"b"))
    before = files(folder)
    assert list(before.values()) == [b"a\nb\n"]
    second = sink(state, folder / "%Y-%m-%d")
    second._clock.advance(86_400)  # type: ignore[attr-defined]
    second.write(numbered(5, b"a", b"b", b"c"))
    after = files(folder)
    assert sorted(after.values()) == [b"a\nb\n", b"c\n"]
    assert before.items() <= after.items()
    second.write(numbered(5, b"a", b"b", b"c"))
    assert files(folder) == after


def test_a_plan_is_on_the_disk_before_its_object_and_that_before_the_write_returns(tmp_path: Path) -> None:
    """Plans, objects, their names and new directories are synced in the order that a power cut requires."""
    state, folder = tmp_path / "k", tmp_path / "objects"
    with noted_syncs() as seen:
        sink(tmp_path, folder / "a").write(numbered(1, b"x"))
    (name,) = files(folder)
    plan, written = state / "plans.json", folder / name
    assert seen == [
        *[("file", plan.stat().st_size), ("rename", plan.name), ("directory", state.stat().st_ino)],
        *[("directory", written.parent.parent.stat().st_ino), ("directory", tmp_path.stat().st_ino)],
        *[("file", 2), ("rename", written.name), ("directory", written.parent.stat().st_ino)],
    ]


def test_all_plans_of_a_delivery_are_recognized_after_a_restart(tmp_path: Path) -> None:
    """All plans of a delivery are recognized after a restart, so batches between them form the same object."""
    folder, state = tmp_path / "objects", tmp_path / "state"
    made = sink(state, folder)
    made.write(numbered(5, b"a", b"b"))
    made.write(numbered(5, b"a", b"b", b"c"))
    before = files(folder)
    sink(state, folder).write(numbered(5, b"a", b"b", b"c", b"d"))
    assert sorted(files(folder).values()) == [b"a\nb\n", b"c\n", b"d\n"]
    assert before.items() <= files(folder).items()


@pytest.mark.parametrize("kept", ["{", '{"plans": [[1]]}', "[]"])
def test_unreadable_plans_are_logged_and_the_delivery_continues_its_objects_may_be_repeated(
    kept: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Unreadable plans are logged, and the delivery continues; its objects may be repeated."""
    (tmp_path / "state/k").mkdir(parents=True)
    (tmp_path / "state/k/plans.json").write_text(kept)
    sink(tmp_path / "state", tmp_path / "objects").write(numbered(1, b"a"))
    assert "may be written twice" in caplog.text
    assert list(files(tmp_path / "objects").values()) == [b"a\n"]


def test_hidden_files_left_by_a_crash_are_removed_at_the_next_start_readers_see_only_complete_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden files left by a crash are removed at the next start; readers see only complete objects."""
    folder, state = tmp_path / "objects", tmp_path / "state"
    first = sink(state, folder)
    monkeypatch.setattr(Path, "replace", _dies_for_objects(Path.replace))
    monkeypatch.setattr(Path, "unlink", lambda _path: None)  # a killed process removes nothing
    with pytest.raises(KeyboardInterrupt):
        first.write(numbered(1, b"a"))
    monkeypatch.undo()
    (left,) = files(folder)
    assert left.startswith(".")
    assert left.endswith("~")
    sink(state, folder).write(numbered(9, b"b"))
    assert list(files(folder).values()) == [b"b\n"]


def _dies_for_objects(replace: Callable[..., Path]) -> Callable[..., Path]:
    def dies(self: Path, target: Path) -> Path:
        if target.suffix == ".txt":
            raise KeyboardInterrupt
        return replace(self, target)

    return dies


def test_a_file_system_gets_an_object_by_a_move(tmp_path: Path) -> None:
    """In a file system an object is written under a hidden name and moved; an object that was moved is kept."""
    path = f"memory://{tmp_path.name}/a"
    made = sink(tmp_path / "state", path)
    made.write(numbered(1, b"a"))
    made.write(numbered(1, b"a"))
    found = fsspec.filesystem("memory").find(tmp_path.name)
    assert [name.rpartition("/")[2] for name in found] == [f"events-{made._plans._plans[0].name}.txt"]
    made._store.remove(f"{path}/nothing")


@pytest.mark.parametrize(
    ("options", "ending", "unpack"),
    [
        ({"compression": "gzip"}, ".txt.gz", gzip.decompress),
        ({"compression": "zstd"}, ".txt.zst", zstd.decompress),
        ({"compression": None}, ".txt.gz", gzip.decompress),
        ({"file_suffix": ".log"}, ".log", bytes),
    ],
)
def test_objects_of_text_hold_lines(
    options: dict[str, Any], ending: str, unpack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """Text objects have the bodies as lines, with the configured compression and its suffix."""
    sink(tmp_path / "state", tmp_path / "objects", **options).write([EventBatch.of_bodies([b"a", b"b"])])
    ((name, data),) = files(tmp_path / "objects").items()
    assert name.endswith(ending)
    assert unpack(data) == b"a\nb\n"


def test_json_objects_have_a_line_for_each_event_with_its_headers(tmp_path: Path) -> None:
    """JSON objects have a line for each event, with its headers."""
    sink(tmp_path / "state", tmp_path / "objects", format="json").write(numbered(1, b"a", host="h"))
    ((name, data),) = files(tmp_path / "objects").items()
    assert name.endswith(".json")
    assert json.loads(data) == {"headers": {"host": "h"}, "body": "a"}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("%Y/%m/%d/%H%M%S", "2023/11/14/221320"),
        ("%y-%e-%k-%l-%p-%j", "23-14-22-10-PM-318"),
        ("%a %A %b %B", "Tue Tuesday Nov November"),
        ("%D|%I|%z", "11/14/23|10|+0000"),
        ("%s,%t,%%", "1700000000,1700000000123,%"),
        ("%c", "Tue Nov 14 22:13:20 2023"),
        ("%{host}/%{none}", "h/_"),
        ("%{way}/%{up}", ".._.._etc_x/_"),
    ],
)
def test_paths_hold_headers_and_times(path: str, place: str, tmp_path: Path) -> None:
    """Paths contain times and headers by Flume's escapes; a header is always one part of the path."""
    made = sink(tmp_path, f"/base/{path}", file_prefix="p")
    headers = {"host": "h", "timestamp": str(TIME), "way": "../../etc/x", "up": ".."}
    assert made._places.split(EventBatch.of_lines(b"a\n", headers), 0)[0][0] == f"/base/{place}/p"


@pytest.mark.parametrize(
    ("unit", "value", "place"), [("second", 15, "22:13:15"), ("minute", 5, "22:10:00"), ("hour", 6, "18:00:00")]
)
def test_times_are_rounded_down(unit: str, value: int, place: str, tmp_path: Path) -> None:
    """round, roundValue and roundUnit round times down, as in Flume."""
    options = {"round": True, "round_value": value, "round_unit": unit}
    made = sink(tmp_path, "/%H:%M:%S", **options)
    columns = {"timestamp": [str(TIME), str(TIME + 1)]}
    batch = EventBatch.of_bodies([b"a", b"b"], {}, columns)
    assert [place for place, _ in made._places.split(batch, 0)] == [f"/{place}/events"]


@pytest.mark.parametrize("stamp", [None, "", "soon", "9" * 30, "-5"])
def test_an_event_without_a_time_has_that_of_writing(stamp: str | None, tmp_path: Path) -> None:
    """An event without a time gets the time of writing; Flume's sink stops there."""
    batch = EventBatch.of_bodies([b"a", b"b"], {}, {"timestamp": [stamp, str(TIME)]})
    made = sink(tmp_path, "/%Y")
    assert [place for place, _ in made._places.split(batch, 86_400_000)] == ["/1970/events", "/2023/events"]


def test_with_use_local_time_stamp_paths_have_the_time_of_writing(tmp_path: Path) -> None:
    """With use_local_time_stamp paths have the time of writing."""
    made = sink(tmp_path, "/%Y", use_local_time_stamp=True)
    assert made._places.split(EventBatch.of_lines(b"a\n", {"timestamp": str(TIME)}), 0)[0][0] == "/1970/events"


def test_it_waits_until_there_is_enough(tmp_path: Path) -> None:
    """The sink waits for a size, a count, a time, or idleness; 0 disables each."""
    options = {"roll_size": "1m", "roll_count": 7, "roll_interval": 60, "idle_timeout": 5}
    made = sink(tmp_path, "/a", **options)
    assert (made.most_events, made.most_bytes, made.patience) == (7, 1 << 20, Patience(60, 5))
    made = sink(tmp_path, "/a", roll_size=0, roll_interval=0)
    assert made.patience == Patience(float("inf"), float("inf"))
    assert made.most_bytes == 256 << 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "/%q"}, "unknown escape %q"),
        ({"path": "nosuch://a"}, "cannot be used"),
        ({"path": "/a", "compression": "snappy"}, "snappy is only for parquet"),
        ({"path": "/a", "time_zone": "Mars"}, "must be a time zone"),
        ({"path": "/a", "body": "json"}, "is only for parquet"),
        ({"path": "/a", "format": "parquet", "schema": {"n": "int8"}}, "must have types of bool, int64"),
        ({"path": "/a", "format": "parquet", "schema": {"_Rest": "string"}}, "must not have the column _rest"),
        ({"path": "/a", "format": "parquet", "schema": {"a.b": "date", "A_B": "date"}}, "names that differ"),
    ],
)
def test_an_invalid_option_is_refused_before_the_start_with_its_name_and_the_rule(
    options: dict[str, str], message: str
) -> None:
    """An invalid option is refused before the start, with its name and the rule."""
    with pytest.raises(ConfigError, match=message):
        ObjectsSink.Options(**options)  # type: ignore[arg-type]


def test_no_secret_is_in_an_error(tmp_path: Path) -> None:
    """Secrets of the store are replaced in errors."""
    storage = {"key": "not-a-secret", "secret": "hush-hush-hush"}
    made = sink(tmp_path, "/a", storage=storage)
    assert made._description(ValueError("bad key hush-hush-hush")) == "ValueError: bad key ***"


_FLUME = """
a1.sources = s
a1.channels = c
a1.sinks = k
a1.sources.s.type = seq
a1.sources.s.channels = c
a1.channels.c.type = memory
a1.sinks.k.type = hdfs
a1.sinks.k.channel = c
a1.sinks.k.hdfs.path = /flume/%y-%m-%d/%H
a1.sinks.k.hdfs.rollSize = 134217728
a1.sinks.k.hdfs.rollCount = 0
a1.sinks.k.hdfs.idleTimeout = 60
a1.sinks.k.hdfs.batchSize = 1000
a1.sinks.k.hdfs.round = true
a1.sinks.k.hdfs.roundUnit = minute
a1.sinks.k.hdfs.useLocalTimeStamp = true
"""


def test_flumes_hdfs_sink_is_this_one() -> None:
    """The options of Flume's hdfs sink are accepted; sequence files, its default, are refused with a message."""
    config = parse_flume(_FLUME + "a1.sinks.k.hdfs.fileType = CompressedStream\na1.sinks.k.hdfs.codeC = gzip\n", "a1")
    assert not config.problems
    options = read_options(ObjectsSink.Options, config.sinks["k"].options, "sinks.k")
    assert config.sinks["k"].type == "objects"
    assert (options.file_prefix, options.roll_interval, options.packed) == ("FlumeData", 30.0, "gzip")
    assert (options.roll_size, options.roll_count, options.idle_timeout) == (128 << 20, 0, 60.0)
    with pytest.raises(AgentConfigError) as caught:
        draw(parse_flume(_FLUME, "a1"))
    (problem,) = caught.value.problems  # the path is accepted
    assert problem.key == "hdfs.fileType"
    assert "must be DataStream or CompressedStream" in problem.message
