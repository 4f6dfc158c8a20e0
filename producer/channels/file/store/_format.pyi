from collections.abc import Iterable, Sequence

from ....model.interfaces import Event
from .format import PutPayload

def encode_events(events: Iterable[Event]) -> list[PutPayload]: ...
def encode_records(
    seed: int, first: int, transaction: int, puts: Sequence[PutPayload], others: Sequence[tuple[int, bytes]]
) -> tuple[bytes, list[int]]: ...
def decode_events(payloads: list[PutPayload], sequences: Iterable[int]) -> list[Event]: ...
