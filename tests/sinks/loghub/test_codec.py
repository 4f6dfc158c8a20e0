"""Bodies and their sizes."""

import pytest

from producer.model.records import StreamKey
from producer.sinks.loghub.codec import Codec
from producer.wire.log_group import encode_log
from tests.support.pipelines import KEY


@pytest.mark.parametrize("pack_id", [None, "", "C-0", *("x" * length for length in range(90, 140)), "\u00e9" * 90])
@pytest.mark.parametrize("key", [KEY, KEY._replace(topic="t" * 200, tags=(("a", "b"), ("c", "d" * 300)))])
def test_the_size_of_a_tail_is_known_before_it_is_made(key: StreamKey, pack_id: str | None) -> None:
    """The computed size of a tail is exact for any pack id: batches are cut by it, and take memory by it."""
    codec, record = Codec("protobuf", "none"), encode_log({"k": "v"}, 1, 0, None)
    payload = codec.encode(key, pack_id, [record])
    assert codec.tail_size(key, pack_id) + len(record) == len(payload.body) == payload.raw_size
