"""Producer and Stream: the public methods."""

import enum
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest

from producer import (
    ConfigError,
    InvalidArgumentError,
    LogItem,
    LogSizeTooLargeError,
    MaxBatchCountExceedError,
    Producer,
    ProducerClosedError,
    ProducerConfig,
    ProjectConfig,
    Result,
    SendTimeoutError,
)
from producer.model.interfaces import Delivery
from producer.sinks import StdoutSink
from producer.sinks.loghub.sink import LogHubSink
from producer.testing import RecordingSink, ScriptedSink
from producer.wire.put_logs import adjust_shard_hash
from tests.support.log_group_schema import LogGroup, contents_of
from tests.support.pipelines import config
from tests.support.sinks import DeadSink, GatedSink
from tests.support.threads import named
from tests.support.waiting import PATIENCE, Call, eventually

LOG = {"a": "b"}


def _contents(delivery: Delivery) -> list[list[tuple[bytes, bytes]]]:
    return contents_of(delivery.payload.body)


def test_a_log_arrives_in_the_log_group_that_its_arguments_describe() -> None:
    """Topic, source, tags, pack id, fields and time of one send are those of the delivered LogGroup."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config(source="me", log_tags={"env": "prod"})) as producer:
        producer.stream("p", "l", topic="t", tags={"k": "v"}).send(LogItem({"a": 1, "n": None}, 5, 6))
    group = LogGroup()
    group.ParseFromString(sink.deliveries[0].payload.body)
    assert (group.Topic, group.Source) == (b"t", b"me")
    assert (group.Logs[0].Time, group.Logs[0].Time_ns) == (5, 6)
    assert _contents(sink.deliveries[0]) == [[(b"a", b"1")]]
    tags = [(tag.Key, tag.Value) for tag in group.LogTags]
    assert tags[:2] == [(b"env", b"prod"), (b"k", b"v")]
    assert tags[2][0] == b"__pack_id__"


def test_changing_a_dict_a_nested_list_a_list_of_logs_or_a_bytearray_after_send_has_no_effect() -> None:
    """Changing a dict, a nested list, a list of logs or a bytearray after send has no effect."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config()) as producer:
        inner, data = [1], bytearray(b"x")
        log: dict[str, Any] = {"a": "before", "list": inner, "data": data}
        logs = [log, {"b": "before"}]
        producer.send("p", "l", logs)
        log["a"] = "after"
        inner.append(2)
        data[0] = 0
        logs.clear()
    assert _contents(sink.deliveries[0]) == [
        [(b"a", b"before"), (b"list", b"[1]"), (b"data", b"x")],
        [(b"b", b"before")],
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", "l", LOG), "project: must not be empty"),
        (("p", "", LOG), "logstore: must not be empty"),
        (("p", "l\r\nX-A: b", LOG), "logstore: must not have control characters"),
        (("p", "a/b c", LOG), "logstore: must be lower-case letters, digits, dashes and underscores.*got 'a/b c'"),
        (("p", "App", LOG), "logstore: must be lower-case letters"),
        (("p", "-app", LOG), "begin and end with a letter or a digit"),
        (("p", "app_", LOG), "begin and end with a letter or a digit"),
        (("p", "a" * 64, LOG), "63 characters at most"),
        ((None, "l", LOG), "project: must be text, got None"),
        ((5, "l", LOG), "project: must be text"),
        (([], "l", LOG), r"project: must be text, got \[\]"),
        (("p", None, LOG), "logstore: must be text"),
        (("p", "l", None), "must be a mapping or a LogItem, got NoneType"),
        (("p", "l", []), "must not be empty"),
        (("p", "l", "text"), "must be a mapping or a LogItem, got str"),
        (("p", "l", [LOG, None]), "got NoneType"),
        (("p", "l", {1: "x"}), "name must be text, got 1"),
        (("p\ud800", "l", LOG), "not valid Unicode"),
    ],
)
def test_wrong_arguments_are_refused_at_send(arguments: tuple[Any, ...], words: str) -> None:
    """Null, empty and invalid arguments raise at once; nothing is accepted."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        with pytest.raises(InvalidArgumentError, match=words):
            producer.send(*arguments)
        assert producer.stats().accepted == 0
        assert producer.stats().memory_used == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": 5}, "topic: must be text"),
        ({"source": 5}, "source: must be text"),
        ({"topic": "\udfff"}, "not valid Unicode"),
        ({"shard_hash": 5}, "shard_hash: must be text"),
        ({"shard_hash": []}, "shard_hash: must be text"),
    ],
)
def test_wrong_options_are_refused_at_send(options: dict[str, Any], words: str) -> None:
    """Topic, source and shard hash must be text."""
    with Producer(sink=RecordingSink(), config=config()) as producer, pytest.raises(InvalidArgumentError, match=words):
        producer.send("p", "l", LOG, **options)


def test_wrong_tags_are_refused_by_stream() -> None:
    """Tags must be text to text."""
    with Producer(sink=RecordingSink(), config=config()) as producer, pytest.raises(InvalidArgumentError, match="tags"):
        producer.stream("p", "l", tags={"a": 1})  # type: ignore[dict-item]


def test_any_text_is_adjusted_as_a_shard_hash() -> None:
    """Any text is adjusted as a shard hash; without adjustment only 32 hexadecimal digits are accepted."""
    sink = RecordingSink()
    with Producer(sink=sink, config=config(buckets=4)) as producer:
        producer.send("p", "l", LOG, shard_hash="10.1.1.1")
    assert sink.deliveries[0].key.shard_hash == adjust_shard_hash("10.1.1.1", 4)
    with Producer(sink=sink, config=config(adjust_shard_hash=False)) as producer:
        producer.send("p", "l", LOG, shard_hash="A" * 32)
        with pytest.raises(InvalidArgumentError, match="32 hexadecimal digits, got 'host'"):
            producer.send("p", "l", LOG, shard_hash="host")
    assert sink.deliveries[1].key.shard_hash == "A" * 32


def test_a_list_goes_into_one_batch_and_has_one_future() -> None:
    """A list is one delivery in its order, with one callback."""
    sink, told = RecordingSink(), []
    with Producer(sink=sink, config=config()) as producer:
        future = producer.send("p", "l", [{"i": i} for i in range(100)], callback=told.append)
    assert future.result(0).successful
    assert len(told) == 1
    assert [log[0][1] for log in _contents(sink.deliveries[0])] == [str(i).encode() for i in range(100)]


def test_send_many_accepts_any_number_in_order() -> None:
    """100,000 logs are sent in pieces of about a batch; futures cover them in order, each callback runs once."""
    sink, told = RecordingSink(), []
    with Producer(sink=sink, config=config(io_thread_count=1)) as producer:
        stream = producer.stream("p", "l")
        futures = stream.send_many(({"i": str(i)} for i in range(100_000)), callback=told.append)
        assert stream.send_many([]) == []
    assert all(future.result(0).successful for future in futures)
    assert len(told) == len(futures) == -(-100_000 // 4096)
    seen = [log[0][1] for delivery in sink.deliveries for log in _contents(delivery)]
    assert seen == [str(i).encode() for i in range(100_000)]


def test_send_many_without_memory_reports_the_accepted_logs() -> None:
    """The error has the futures and the number of the accepted logs, which arrive."""
    sink = GatedSink()
    producer = Producer(sink=sink, config=config(total_size_in_bytes=20_000, max_block_ms=0, batch_count_threshold=10))
    logs = [{"i": str(i), "x": "x" * 100} for i in range(1000)]
    with pytest.raises(SendTimeoutError) as caught:
        producer.stream("p", "l").send_many(logs)
    sink.gate.set()
    producer.close()
    assert 0 < caught.value.accepted_logs < 1000
    assert all(future.result(0).successful for future in caught.value.accepted)
    seen = sorted(int(log[0][1]) for delivery in sink.deliveries for log in _contents(delivery))
    assert seen == list(range(caught.value.accepted_logs))


def test_a_list_of_40_961_logs_is_refused_and_the_error_names_the_alternative() -> None:
    """A list of 40,961 logs is refused, and the error names the alternative."""
    with (
        Producer(sink=RecordingSink(), config=config()) as producer,
        pytest.raises(MaxBatchCountExceedError, match=r"40961 .* 40960: use send_many"),
    ):
        producer.send("p", "l", [LOG] * 40_961)


def test_threads_start_at_the_first_send() -> None:
    """A new producer has no threads."""
    producer = Producer(sink=RecordingSink(), config=config(name="begins"))
    assert not named("begins-")
    producer.send("p", "l", LOG)
    assert len(named("begins-")) == 5
    producer.close()


def test_projects_are_added_replaced_and_removed() -> None:
    """An invalid project is refused; removing an unknown one raises nothing; the repr shows names without secrets."""
    key = {"access_key_id": "id", "access_key_secret": "s3cret"}
    with Producer(ProjectConfig("one", endpoint="http://127.0.0.1:9", **key)) as producer:
        producer.put_project_config(ProjectConfig("two", endpoint="http://127.0.0.1:9", **key))
        assert "one, two" in repr(producer)
        producer.remove_project_config("one")
        producer.remove_project_config("never there")
        assert "s3cret" not in repr(producer)
        with pytest.raises(InvalidArgumentError, match="must be a ProjectConfig, got str"):
            producer.put_project_config("three")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="no ProjectConfig for 'one'"):
            producer.send("one", "l", LOG)


@pytest.mark.parametrize("blocked", ["put_project", "remove_project"])
def test_when_two_threads_put_and_remove_a_project_the_shown_projects_are_those_of_the_sink(
    blocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When two threads put and remove a project, the shown projects are those of the sink: there is one registry."""
    project = ProjectConfig("p", endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="b")
    entered, go_on, real = threading.Event(), threading.Event(), getattr(LogHubSink, blocked)

    def late(sink: LogHubSink, argument: Any) -> None:
        if not entered.is_set():
            entered.set()
            assert go_on.wait(PATIENCE)
        real(sink, argument)

    with Producer(config=config(linger_ms=100, retries=0)) as producer:
        if blocked == "remove_project":
            producer.put_project_config(project)
        monkeypatch.setattr(LogHubSink, blocked, late)
        calls = [lambda: producer.put_project_config(project), lambda: producer.remove_project_config("p")]
        first, second = calls if blocked == "put_project" else reversed(calls)
        call = Call(first)
        assert entered.wait(PATIENCE)
        second()
        go_on.set()
        call.result()
        try:
            known = producer.send("p", "l", LOG).exception(PATIENCE) is not None  # no server listens there
        except InvalidArgumentError:
            known = False
        assert known == ("projects: p" in repr(producer))


def test_a_sink_that_takes_no_projects_refuses_one_an_object_that_is_not_a_sink_is_refused_too() -> None:
    """A sink that takes no projects refuses one; an object that is not a sink is refused, too."""
    project = ProjectConfig("p", endpoint="http://127.0.0.1:9", access_key_id="id", access_key_secret="b")
    with pytest.raises(InvalidArgumentError, match="StdoutSink has no projects: leave out 'p'"):
        Producer(project, sink=StdoutSink())
    for wrong in (StdoutSink, object()):
        with pytest.raises(ConfigError, match="sink: must be None or inherit"):
            Producer(sink=wrong)  # type: ignore[arg-type]


def test_a_sink_is_closed_once_also_if_nothing_was_sent() -> None:
    """The producer closes its sink once, even if nothing was sent."""

    class Counting(RecordingSink):
        closes = 0

        def close(self) -> None:
            self.closes += 1

    for records in (0, 1):
        sink = Counting()
        with Producer(sink=sink, config=config(linger_ms=100)) as producer:
            for _ in range(records):
                producer.send("p", "l", LOG)
        producer.close()
        assert sink.closes == 1


def test_an_unknown_project_is_refused_by_send_with_the_nearest_name() -> None:
    """An unknown project is refused with the nearest name; with a channel its records wait for the configuration."""
    key = {"access_key_id": "id", "access_key_secret": "b"}
    project = ProjectConfig("shop", endpoint="http://127.0.0.1:9", **key)
    with Producer(project) as producer:
        for send in (lambda: producer.send("shpo", "l", LOG), lambda: producer.stream("shpo", "l")):
            with pytest.raises(InvalidArgumentError, match=r"no ProjectConfig for 'shpo' .did you mean 'shop'"):
                send()
        with pytest.raises(InvalidArgumentError, match="it has shop"):
            producer.send("other", "l", LOG)
    with Producer() as producer, pytest.raises(InvalidArgumentError, match="it has none"):
        producer.send("shop", "l", LOG)


def test_a_topic_of_none_is_the_same_as_no_topic() -> None:
    """A topic of None is the same as no topic."""
    with Producer(sink=RecordingSink(), config=config()) as producer:
        assert producer.stream("p", "l", topic=None).key == producer.stream("p", "l").key


def test_a_record_whose_project_is_removed_while_it_waits_fails_at_its_first_attempt() -> None:
    """A record whose project is removed while it waits fails at its first attempt, without a request."""
    told: list[Result] = []
    key = {"access_key_id": "id", "access_key_secret": "b"}
    with Producer(
        ProjectConfig("nobody", endpoint="http://127.0.0.1:9", **key), config=config(linger_ms=100_000)
    ) as producer:
        producer.send("nobody", "l", LOG, callback=told.append)
        producer.remove_project_config("nobody")
        producer.flush(PATIENCE)
    assert [result.error_code for result in told] == ["ProjectConfigNotExist"]
    assert told[0].attempt_count == 1


def test_pickling_carries_the_configuration_and_not_the_threads() -> None:
    """A pickled producer or stream carries its configuration; the copy starts with its first send."""
    key = {"access_key_id": "id", "access_key_secret": "b"}
    original = Producer(ProjectConfig("p", endpoint="http://127.0.0.1:9", **key), config=ProducerConfig(retries=0))
    stream = original.stream("p", "l", topic="t")
    original.stats()
    copy, stream_copy = pickle.loads(pickle.dumps((original, stream)))
    assert copy.config == original.config
    assert stream_copy.key == stream.key
    assert copy._pipeline is None
    assert "projects: p" in repr(copy)


def test_after_close_send_raises_and_stats_remain() -> None:
    """A closed producer refuses sends of every kind, and keeps its statistics."""
    producer = Producer(sink=RecordingSink(), config=config())
    stream = producer.stream("p", "l")
    stream.send(LOG)
    assert not producer.closed
    producer.close()
    assert producer.closed
    for call in (lambda: producer.send("p", "l", LOG), lambda: stream.send(LOG), lambda: stream.send_many([LOG])):
        with pytest.raises(ProducerClosedError):
            call()
    assert producer.stats().delivered == 1
    assert "closed" in repr(producer)


def test_a_producer_without_references_drains_and_its_threads_end() -> None:
    """A producer without references drains, and its threads end."""
    sink = RecordingSink()
    producer = Producer(sink=sink, config=config(linger_ms=100, name="dropped", drain_timeout_ms=10_000))
    future = producer.send("p", "l", LOG)
    gone = weakref.ref(producer)
    del producer
    gc.collect()
    assert gone() is None
    assert future.result(PATIENCE).successful
    eventually(lambda: not [t for t in threading.enumerate() if t.name.startswith("dropped-")])
    assert sink.closed


def test_stats_tell_where_everything_is() -> None:
    """Counts by state, memory by stage, streams, waiting senders and the oldest record's age are correct."""
    sink = GatedSink()
    producer = Producer(
        sink=sink,
        config=config(total_size_in_bytes=12_000, max_block_ms=-1, batch_count_threshold=2, io_thread_count=1),
    )
    empty = producer.stats()
    assert (empty.accepted, empty.memory_used, empty.oldest_record_age, empty.streams) == (0, 0, None, ())
    producer.send("p", "l", [LOG, LOG])
    assert sink.entered.acquire(timeout=PATIENCE)
    producer.send("p", "l", LOG, topic="open")
    waiting = Call(lambda: producer.send("p", "l", {"a": "x" * 2500}))
    eventually(lambda: producer.stats().waiting_senders == 1)
    stats = producer.stats()
    assert stats.batches == {"open": 1, "queued": 0, "sending": 1, "waiting": 0}
    assert (stats.accepted, stats.pending, stats.delivered) == (3, 3, 0)
    assert stats.memory_used == sum(stats.memory_by_stage.values()) <= stats.memory_limit == 12_000
    assert stats.oldest_record_age is not None
    assert {known.topic: known.pending for known in stats.streams} == {"": 2, "open": 1}
    sink.gate.set()
    waiting.result()
    producer.close()
    stats = producer.stats()
    assert (stats.accepted, stats.delivered, stats.failed, stats.pending, stats.memory_used) == (4, 4, 0, 0, 0)


def test_stats_count_retries_failures_and_attempts() -> None:
    """retried counts logs each time, attempts count requests, failed counts logs."""
    sink = DeadSink()
    producer = Producer(
        sink=sink, config=config(retries=2, base_retry_backoff_ms=1, max_retry_backoff_ms=1, linger_ms=100)
    )
    producer.send("p", "l", [LOG] * 5)
    producer.flush(PATIENCE)
    stats = producer.stats()
    assert (stats.retried, stats.attempts, stats.failed) == (10, 3, 5)
    producer.close()


class _Names(str, enum.Enum):  # noqa: UP042  # the older spelling, whose format() differs
    PROJECT = "p"
    LOGSTORE = "l"


def test_a_member_of_a_text_enum_is_its_text_in_every_part_of_the_key() -> None:
    """A member of a text enum is its text, in every part of the key."""
    sink = ScriptedSink()
    with Producer(sink=sink, config=config()) as producer:
        producer.send(_Names.PROJECT, _Names.LOGSTORE, LOG, topic=_Names.PROJECT)
        producer.send("p", "l", LOG, topic="p")
    assert len(sink.deliveries) == 1
    key = sink.deliveries[0].key
    assert [f"{part}" for part in key[:3]] == ["p", "l", "p"]


def test_names_and_tags_of_a_stream_are_bounded() -> None:
    """The names and tags of a stream have a limit of their own; the error has both numbers."""
    with Producer(sink=RecordingSink()) as producer, pytest.raises(LogSizeTooLargeError) as refusal:
        producer.stream("p", "l", source="here", topic="t" * 2500, tags={"k": "v" * 2500})
    assert (refusal.value.size, refusal.value.limit) == (5007, 4 * 1024)


@pytest.mark.parametrize("callback", ["x", 5, {}])
def test_a_callback_that_cannot_be_called_is_refused(callback: Any) -> None:
    """``send`` and ``send_many`` refuse a callback that cannot be called; nothing is accepted."""
    with Producer(sink=RecordingSink()) as producer:
        stream = producer.stream("p", "l")
        with pytest.raises(InvalidArgumentError, match="callback: must be None or callable"):
            stream.send(LOG, callback=callback)
        with pytest.raises(InvalidArgumentError, match="callback: must be None or callable"):
            stream.send_many([LOG], callback=callback)
        assert producer.stats().accepted == 0


def test_a_done_callback_that_cannot_be_called_disturbs_no_other() -> None:
    """A done-callback that cannot be called is logged; other futures are notified."""
    told: list[Result] = []
    with Producer(sink=RecordingSink()) as producer:
        stream = producer.stream("p", "l")
        stream.send(LOG, callback=told.append).add_done_callback("x")  # type: ignore[arg-type]
        stream.send(LOG, callback=told.append)
    assert len(told) == 2


def test_a_wrong_argument_of_the_producer_gets_an_error_with_the_remedy() -> None:
    """A misspelt option, a repeated project, or a mapping for a configuration gets an error that says what to do."""
    project = ProjectConfig("p", endpoint="http://h", access_key_id="a", access_key_secret="s")
    with pytest.raises(ConfigError, match="lingerms: unknown option; did you mean linger_ms"):
        ProducerConfig(lingerms=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="each project once"):
        Producer(project, project)
    with pytest.raises(ConfigError, match="from_mapping"):
        Producer(config={"linger_ms": 500})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"access_key_secret: .*line end.*\*\*\*"):
        ProjectConfig("p", endpoint="http://h", access_key_id="a", access_key_secret="s\n")
