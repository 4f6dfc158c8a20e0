"""LogGroups as JSON, for ``log_format="json"``."""

import json

from hypothesis import given
from hypothesis import strategies as st

from producer import LogItem
from producer.wire.json_group import decode_json, encode_json
from producer.wire.log_group import encode_log

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = TEXT.filter(lambda name: not name.startswith("__time"))
ITEMS = st.builds(
    LogItem,
    st.lists(st.tuples(NAME, TEXT), max_size=5),
    st.integers(0, 2**32 - 1),
    st.integers(0, 999_999_999),
)


def test_a_body_has_the_shape_that_the_java_producer_sends() -> None:
    """A body has the form of the Java producer: topic, source and tags next to the logs."""
    record = encode_log({"level": "信息", "n": 1}, 1_700_000_000)
    body = encode_json([record], "t", "s", [("env", "prod")])
    assert json.loads(body) == {
        "__topic__": "t",
        "__source__": "s",
        "__tags__": {"env": "prod"},
        "__logs__": [{"__time__": 1_700_000_000, "level": "信息", "n": "1"}],
    }


@given(st.lists(ITEMS, max_size=5), st.integers(0, 5))
def test_decoding_gives_back_the_records_so_that_a_batch_can_be_cut(items: list[LogItem], joined: int) -> None:
    """Decoding restores every record byte for byte, with repeated names and joined logs."""
    records = [encode_log(item, 0) for item in items]
    sends = [b"".join(records[:joined]), *records[joined:]]
    assert decode_json(encode_json(sends, "t", "s", [])) == records


def test_bytes_that_are_not_utf8_are_shown_not_lost() -> None:
    """Bytes that are not UTF-8 are shown with backslashes."""
    record = encode_log({"raw": b"a\xff"}, 1)
    assert json.loads(encode_json([record], "", "", []))["__logs__"] == [{"__time__": 1, "raw": "a\\xff"}]
