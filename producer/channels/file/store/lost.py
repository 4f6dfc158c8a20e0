"""Lost: recover what is known of events with damaged records, for callbacks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .format import FRAME_SIZE, MARKER, Kind, damaged_headers, decode_frame


@dataclass(frozen=True, slots=True)
class LostEvent:
    """A lost event.

    :ivar sequence: its sequence number.
    :ivar size: the bytes of its headers and body.
    :ivar headers: its headers as far as they can be read, unverified; None if unreadable, for instance encrypted.
    """

    sequence: int
    size: int
    headers: Mapping[str, str | None] | None


#: Callback for lost events, and for the number of further ones of which nothing is left.
OnLost = Callable[[Sequence[LostEvent], int], object]


def lost_events_in(data: bytes, lost: Collection[int]) -> Iterator[LostEvent]:
    """Yield the lost events in a damaged stretch, as far as the heads of their records can be found.

    :param data: the stretch, from the start of a record.
    :param lost: the sequence numbers of lost events.
    """
    offset = 0
    while offset + FRAME_SIZE <= len(data):
        marker, _, size, kind, _, sequence, _ = decode_frame(data, offset)
        stop = offset + FRAME_SIZE + size
        if marker != MARKER or stop > len(data):
            offset = data.find(MARKER, offset + 1)
            if offset < 0:
                return
            continue
        if kind == Kind.PUT and sequence in lost:
            yield LostEvent(sequence, size, damaged_headers(data[offset + FRAME_SIZE : stop]))
        offset = stop
