"""The PutLogs request, and the adjustment of shard hashes."""

import re
from typing import Any

import pytest

from producer import StreamKey
from producer.model.interfaces import SequenceId
from producer.wire.put_logs import adjust_shard_hash, new_hash_key, put_logs_headers, put_logs_params, put_logs_path
from tests.wire.test_log_group import VECTORS


@pytest.mark.parametrize(
    "vector", [pytest.param(v, id=f"{v['shard_hash']!r}-{v['buckets']}") for v in VECTORS["shard_hashes"]]
)
def test_each_shard_hash_is_adjusted_as_the_java_producer_does(vector: dict[str, Any]) -> None:
    """Each vector's hash is rounded down to the vector's bucket."""
    assert adjust_shard_hash(vector["shard_hash"], vector["buckets"]) == vector["adjusted"]


def test_buckets_bound_the_number_of_hashes() -> None:
    """A thousand hashes fall into at most as many values as there are buckets, and into all of few."""
    for buckets in (1, 2, 4, 8, 512):
        found = {adjust_shard_hash(f"host-{i}", buckets) for i in range(1000)}
        assert len(found) <= buckets
        assert buckets > 8 or len(found) == buckets


def test_a_shard_hash_chooses_the_route_and_none_balances() -> None:
    """With a shard hash the path ends in route, and the key is a parameter; without, it ends in lb."""
    key = StreamKey("p", "my/store")
    assert put_logs_path(key) == "/logstores/my%2Fstore/shards/lb"
    assert put_logs_params(key, None) == {}
    routed = key._replace(shard_hash="0" * 32)
    assert put_logs_path(routed) == "/logstores/my%2Fstore/shards/route"
    assert put_logs_params(routed, "clean") == {"key": "0" * 32, "processor": "clean"}


def test_an_idempotent_batch_has_its_own_hash_key_and_number_unadjusted() -> None:
    """An idempotent batch has its own hash key and number, unadjusted, instead of those of the stream."""
    key = StreamKey("p", "l", shard_hash="f" * 32)
    sequence = SequenceId("0123456789abcdef" * 2, 7)
    assert put_logs_path(key._replace(shard_hash=None), sequence) == "/logstores/l/shards/route"
    assert put_logs_params(key, "clean", sequence) == {
        "key": "0123456789abcdef" * 2,
        "seqid": "7",
        "processor": "clean",
    }


@pytest.mark.parametrize("buckets", [1, 2, 512])
def test_a_new_hash_key_keeps_only_the_bits_that_choose_the_shard(buckets: int) -> None:
    """A new hash key keeps log2(buckets) bits of the shard hash; all others are random."""
    chosen = adjust_shard_hash("host", buckets)
    free = 128 - (buckets - 1).bit_count()
    keys = [int(new_hash_key(chosen, buckets), 16) for _ in range(64)]
    assert {key >> free for key in keys} == {int(chosen, 16) >> free}
    seen = 0
    for key in keys:
        seen |= key ^ keys[0]
    assert seen.bit_length() == free
    assert re.fullmatch("[0-9a-f]{32}", new_hash_key(None, buckets))


def test_headers_name_the_compression_unless_there_is_none() -> None:
    """The headers have the raw size, and the compression if there is one."""
    headers = put_logs_headers("h", 7, "lz4", "agent")
    assert headers["x-log-bodyrawsize"] == "7"
    assert headers["x-log-compresstype"] == "lz4"
    assert "x-log-compresstype" not in put_logs_headers("h", 7, "none", "agent")
