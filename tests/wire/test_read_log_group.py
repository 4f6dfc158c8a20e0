"""LogGroups are read without the protobuf library."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.model.records import LogItem
from producer.wire.log_group import encode_log, encode_tail
from producer.wire.protobuf import delimited
from producer.wire.read_log_group import read_group, read_groups, read_log
from producer.wire.schema import LogGroup

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@settings(max_examples=30)
@given(
    logs=st.lists(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4), min_size=1, max_size=3),
    topic=TEXT,
    source=TEXT,
    time=st.integers(0, (1 << 32) - 1),
)
def test_time_fields_topic_source_and_tags_of_each_log_are_restored(
    logs: list[dict[str, str]], topic: str, source: str, time: int
) -> None:
    """Time, fields, topic, source and tags of each log are restored."""
    group = b"".join(encode_log(log, time) for log in logs) + encode_tail(topic, source, [("k", "v")])
    common = {"__time__": str(time), "__source__": source, "__topic__": topic, "__tag__:k": "v"}
    assert list(read_group(group)) == [common | log for log in logs]
    assert [list(each) for each in read_groups(delimited(0x0A, group) * 2)] == [[common | log for log in logs]] * 2


def test_nanoseconds_fields_in_another_order_unknown_fields_and_invalid_bytes_are_read() -> None:
    """Nanoseconds, fields in another order, unknown fields, and invalid bytes are read."""
    message = LogGroup()
    log = message.Logs.add(Time=5, Time_ns=7)
    log.Contents.add(Key="k", Value=b"\xff")
    message.Category, message.MachineUUID = "c", "m"
    found = next(read_group(message.SerializeToString()))
    assert (found["__time__"], found["__time_ns_part__"], found["k"]) == ("5", "7", "\\xff")
    swapped = delimited(0x12, delimited(0x12, b"v") + delimited(0x0A, b"k"))
    assert read_log(b"\x79\x01\x02\x03\x04\x05\x06\x07\x08" + swapped) == ("0", {"k": "v"})


@pytest.mark.parametrize("data", [b"\x0a\x05ab", b"\x0a", b"\x0d\x01", b"\x0b"])
def test_a_truncated_message_or_an_unknown_field_type_is_refused(data: bytes) -> None:
    """A truncated message, or an unknown field type, is refused."""
    with pytest.raises(ValueError, match="protobuf"):
        list(read_group(data))


def test_a_time_given_with_the_log_is_read() -> None:
    """The time of a LogItem is restored."""
    (log,) = read_group(encode_log(LogItem({"a": "b"}, time=12), 99))
    assert (log["__time__"], log["a"]) == ("12", "b")
