"""Codec: encodes a batch's records as the body of a PutLogs request, and decodes them when the batch is split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ...model.interfaces import Payload, Record
from ...model.records import StreamKey
from ...wire.compression import compress, compress_joined, decompress
from ...wire.json_group import decode_json, encode_json
from ...wire.log_group import encode_tag, encode_tail, split_records, tail_size
from ...wire.packing import pack_joined

PACK_ID_TAG = "__pack_id__"


class Codec:
    """The format of bodies, and their compression.

    :param log_format: as :attr:`~producer.ProducerConfig.log_format`.
    :param compression: as :attr:`~producer.ProducerConfig.compression`.
    :param digest: True if requests are signed with the MD5 of their bodies.
    """

    def __init__(self, log_format: str, compression: str, *, digest: bool = False) -> None:
        self._digest = digest
        self._json = log_format == "json"
        self._compression = compression

    def tail_size(self, key: StreamKey, pack_id: str | None) -> int:
        size = _kept_size(key.topic, key.source, key.tags)
        return size if pack_id is None else size + len(encode_tag(PACK_ID_TAG, pack_id))

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        if self._json:
            text = encode_json([bytes(record) for record in records], key.topic, key.source, _tags(key, pack_id))
            return Payload(compress(text, self._compression), len(text))
        parts = (*records, _tail(key, pack_id))
        size = sum(map(len, parts))
        if self._digest:
            body, md5 = pack_joined(parts, self._compression)
            return Payload(body, size, md5)
        return Payload(compress_joined(parts, self._compression), size)

    def decode(self, payload: Payload) -> list[bytes]:
        raw = decompress(payload.body, self._compression, payload.raw_size)
        return decode_json(raw) if self._json else list(split_records(raw))


def _tags(key: StreamKey, pack_id: str | None) -> tuple[tuple[str, str], ...]:
    return key.tags if pack_id is None else (*key.tags, (PACK_ID_TAG, pack_id))


# The tail of a stream is needed for each of its batches.
_kept_tail = lru_cache(maxsize=1024)(encode_tail)
_kept_size = lru_cache(maxsize=1024)(tail_size)  # not from a tail: with very many streams neither stays cached


def _tail(key: StreamKey, pack_id: str | None) -> bytes:
    tail = _kept_tail(key.topic, key.source, key.tags)
    return tail if pack_id is None else tail + encode_tag(PACK_ID_TAG, pack_id)
