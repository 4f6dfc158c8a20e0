from collections.abc import Sequence

from .text_column import TextColumn

def encode_events(
    block: bytes,
    ends: bytes,
    count: int,
    key: bytes,
    fields: Sequence[tuple[bytes, TextColumn]],
    seconds: bytes,
    nanos: bytes,
    most_bytes: int,
    most_logs: int,
) -> list[tuple[bytes, int]]: ...
