"""The PutLogs request: path, query, headers, body.

Source: LogHub protocol, PutLogs; the Aliyun Java producer for the adjustment of shard hashes.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..model.records import StreamKey

if TYPE_CHECKING:
    from ..model.interfaces import SequenceId

API_VERSION = "0.6.0"
CONTENT_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}


def put_logs_path(key: StreamKey, sequence: SequenceId | None = None) -> str:
    """Return the path of the request, with the name of the logstore percent-encoded."""
    action = "route" if sequence is not None or key.shard_hash is not None else "lb"
    return f"/logstores/{quote(key.logstore, safe='')}/shards/{action}"


def put_logs_params(key: StreamKey, processor: str | None, sequence: SequenceId | None = None) -> dict[str, str]:
    """Return the query parameters: the key of the selected shard, if any, and the ingest processor.

    :param sequence: the hash key and number of an idempotent batch; its key replaces that of the stream.
    """
    params = {} if key.shard_hash is None else {"key": key.shard_hash}
    if sequence is not None:
        params = {"key": sequence.key, "seqid": str(sequence.number)}
    if processor:
        params["processor"] = processor
    return params


def put_logs_headers(
    host: str, raw_size: int, compression: str, user_agent: str, log_format: str = "protobuf"
) -> dict[str, str]:
    """Return the headers, without the signature.

    :param host: the ``Host`` header, with the project.
    :param raw_size: the size of the body before compression, bytes.
    :param compression: one of :data:`~producer.wire.compression.COMPRESSIONS`.
    :param log_format: one of :data:`CONTENT_TYPES`.
    """
    headers = {
        "Host": host,
        "Content-Type": CONTENT_TYPES[log_format],
        "User-Agent": user_agent,
        "x-log-apiversion": API_VERSION,
        "x-log-bodyrawsize": str(raw_size),
    }
    if compression != "none":
        headers["x-log-compresstype"] = compression
    return headers


def new_hash_key(shard_hash: str | None, buckets: int) -> str:
    """Return a unique hash key: random, except for the bits of ``shard_hash`` that select the shard.

    :param shard_hash: the result of :func:`adjust_shard_hash`; None to select the shard at random, too.
    :param buckets: a power of two, 1 to 512.
    :returns: 32 lower-case hexadecimal digits.
    """
    free_bits = 128 if shard_hash is None else 128 - (buckets - 1).bit_count()
    chosen = 0 if shard_hash is None else int(shard_hash, 16) >> free_bits << free_bits
    return f"{chosen | secrets.randbits(free_bits):032x}"


def adjust_shard_hash(shard_hash: str, buckets: int) -> str:
    """Round a shard hash down to the start of one of ``buckets`` ranges of the hash space.

    The first ``log2(buckets)`` bits of the text's MD5 digest are kept; the others become zero.

    :param shard_hash: any text.
    :param buckets: a power of two, 1 to 512.
    :returns: 32 lower-case hexadecimal digits.
    """
    digest = int(hashlib.md5(shard_hash.encode(), usedforsecurity=False).hexdigest(), 16)
    free_bits = 128 - (buckets - 1).bit_count()
    return f"{digest >> free_bits << free_bits:032x}"
