"""No field of a log can be mistaken for its time, topic, source or tags."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from producer import LogItem, Producer, ProjectConfig
from producer.testing import RecordingSink
from producer.wire import log_group
from producer.wire.columnar.fields import ContentsColumn, FieldColumn
from producer.wire.columnar.rows import Times, join_rows
from producer.wire.read_log_group import read_group
from producer.wire.reserved import free_key, free_name
from producer.wire.schema import LogGroup
from producer.wire.speed import encode_log

FREE = {
    "__time__": "__time___",
    "__time_ns_part__": "__time_ns_part___",
    "__topic__": "__topic___",
    "__source__": "__source___",
    "__tag__:env": "___tag__:env",
    "__tag__:größe": "___tag__:größe",
    "__tag__:日本": "___tag__:日本",
    "__tag__:": "___tag__:",
    "__time_": "__time_",
    "__timex__": "__timex__",
    "__tag__": "__tag__",
    "__topic__x": "__topic__x",
    "__pack_meta__": "__pack_meta__",
    "_": "_",
    "größer als": "größer als",
}
NAMES = dict.fromkeys(FREE, "x")


def names_of(record: bytes) -> list[str]:
    group = LogGroup.FromString(record)
    return [content.Key for log in group.Logs for content in log.Contents]


@pytest.mark.parametrize("encode", [encode_log, log_group.encode_log])
@pytest.mark.parametrize("make", [dict, LogItem, lambda log: LogItem(list(log.items())), lambda log: {**log, "n": 1}])
def test_a_field_is_never_taken_for_the_time_topic_source_or_a_tag(
    encode: Callable[..., bytes], make: Callable[..., object]
) -> None:
    """A field with a reserved name gets an underscore in both encoders; other names stay."""
    expected = [*FREE.values(), "n"] if "n" in getattr(make(NAMES), "keys", dict)() else [*FREE.values()]
    assert names_of(encode(make(NAMES), 7)) == expected
    assert [free_key(name.encode()).decode() for name in FREE] == list(map(free_name, FREE)) == list(FREE.values())


def test_every_way_of_sending_has_the_same_rule() -> None:
    """One log, a list, lines, columns, and the entries of a map follow the same rule, natively and purely."""
    entries = pa.array([list(NAMES.items())], pa.map_(pa.string(), pa.string()))
    table = pa.table({**{name: ["x"] for name in FREE}, "entries": entries})
    sink, project = RecordingSink(), ProjectConfig("p", endpoint="http://x", access_key_id="i", access_key_secret="s")
    with Producer(project, sink=sink) as producer:
        stream = producer.stream("p", "l")
        stream.send(NAMES)
        stream.send(NAMES)  # Encoded by the open batch.
        stream.send_many([NAMES])
        stream.send_lines(b"x\n", key="__tag__:env")
        stream.send_arrow(table, contents_column="entries")
    found = [names_of(record) for record in sink.records()]
    free = list(FREE.values())
    assert sorted(found) == sorted([free, free, free, ["___tag__:env"], free + free])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.string_view()])
def test_the_pure_encoder_of_columns_follows_the_rule_for_keys_of_any_type(kind: pa.DataType) -> None:
    """The pure encoder of columns follows the rule, for keys of any type."""
    keys = pa.array(FREE, kind)
    entries = pa.MapArray.from_arrays(pa.array([0, len(keys)], pa.int32()), keys, pa.array(["x"] * len(keys)))
    as_they_are = lambda array: array  # noqa: E731
    contents = ContentsColumn(as_they_are, as_they_are).fields(entries)
    named = FieldColumn("__topic__", as_they_are).fields(pa.array(["x"]))
    assert contents is not None
    rows = join_rows(Times(1, None), [named, contents], 1)
    assert names_of(bytes(rows.body)) == ["__topic___", *FREE.values()]


def test_a_reader_returns_the_logs_own_time_topic_source_and_tags() -> None:
    """A reader returns the log's own time, topic, source and tags, and renames such fields of other clients."""
    group = LogGroup(Topic="true", Source="here")
    group.LogTags.add(Key="env", Value="true")
    log = group.Logs.add(Time=7)
    for name in ("__time__", "__topic__", "__source__", "__tag__:env"):
        log.Contents.add(Key=name, Value=b"forged")
    (found,) = read_group(group.SerializeToString())
    shown = {name: found[name] for name in ("__time__", "__topic__", "__source__", "__tag__:env")}
    assert shown == {"__time__": "7", "__topic__": "true", "__source__": "here", "__tag__:env": "true"}
    assert [found[FREE[name]] for name in shown] == ["forged"] * 4
