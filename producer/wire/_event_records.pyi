from collections.abc import Sequence

from .event_records import PackedField

def encode_events(
    block: bytes,
    ends: bytes,
    count: int,
    key: bytes,
    fields: Sequence[PackedField],
    seconds: bytes,
    nanos: bytes,
    most_bytes: int,
    most_logs: int,
) -> list[tuple[bytes, int]]: ...
