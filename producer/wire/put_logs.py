"""The PutLogs request: path, query, headers, body.

Source: LogHub protocol, PutLogs, and the Aliyun Java producer for the adjustment of shard hashes.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from ..records import StreamKey

API_VERSION = "0.6.0"
CONTENT_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}


def put_logs_path(key: StreamKey) -> str:
    """The path of the request, percent-encoded where a logstore's name needs it."""
    action = "route" if key.shard_hash is not None else "lb"
    return f"/logstores/{quote(key.logstore, safe='')}/shards/{action}"


def put_logs_params(key: StreamKey, processor: str | None) -> dict[str, str]:
    """The query parameters: the shard's key where one is chosen, and the ingest processor."""
    params = {} if key.shard_hash is None else {"key": key.shard_hash}
    if processor:
        params["processor"] = processor
    return params


def put_logs_headers(
    host: str, raw_size: int, compression: str, user_agent: str, log_format: str = "protobuf"
) -> dict[str, str]:
    """The headers before the signature.

    :param host: the ``Host`` header, project included.
    :param raw_size: of the body before compression, bytes.
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


def adjust_shard_hash(shard_hash: str, buckets: int) -> str:
    """Round a shard hash down to the start of one of ``buckets`` ranges of the hash space.

    The MD5 digest of the text keeps its first ``log2(buckets)`` bits; the rest becomes zero.

    :param shard_hash: any text.
    :param buckets: a power of two, 1 to 512.
    :returns: 32 lower-case hexadecimal digits.
    """
    digest = int(hashlib.md5(shard_hash.encode(), usedforsecurity=False).hexdigest(), 16)
    free_bits = 128 - (buckets - 1).bit_count()
    return f"{digest >> free_bits << free_bits:032x}"
