"""What can still be told of events whose records are damaged on the disk, for those who know what they held."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .format import FRAME_SIZE, MARKER, Kind, decode_frame, headers_left


@dataclass(frozen=True, slots=True)
class LostEvent:
    """An event that is lost.

    :ivar sequence: its number.
    :ivar size: bytes that its headers and its body had.
    :ivar headers: what its headers seem to be, which nothing has checked; None if nothing can be made of them, as where
        they were encrypted.
    """

    sequence: int
    size: int
    headers: Mapping[str, str | None] | None


#: Is told of events that are lost, and how many more are lost of which nothing is left.
TellLost = Callable[[Sequence[LostEvent], int], object]


def events_left(data: bytes, lost: Collection[int]) -> Iterator[LostEvent]:
    """The events in a stretch that does not check out, as far as the heads of their records can be found.

    :param data: the stretch, which begins where a record should.
    :param lost: the numbers of those that are lost.
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
            yield LostEvent(sequence, size, headers_left(data[offset + FRAME_SIZE : stop]))
        offset = stop
