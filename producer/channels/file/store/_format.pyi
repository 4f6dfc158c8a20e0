from collections.abc import Iterable, Sequence

from ....interfaces import Event
from .format import PutPayload

def encode_events(events: Iterable[Event]) -> list[PutPayload]: ...
def encode_puts(
    seed: int, first: int, transaction: int, records: int, payloads: Sequence[PutPayload]
) -> tuple[list[bytes], list[int]]: ...
def decode_events(payloads: list[PutPayload], sequences: Iterable[int]) -> list[Event]: ...
