"""Sender: the pipeline that the API sends to. There are two: one in memory, and one behind a channel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..model.errors import StreamStoppedError
from ..model.futures import SendFuture
from ..model.interfaces import Record
from ..model.metrics import Stats
from ..model.records import StreamKey
from ..model.results import Callback
from ..runtime.clock import Deadline
from .admission import UnencodedLogs
from .batching.accumulator import Piece
from .batching.open_records import OpenRecords


class Door(Protocol):
    """The ways in, for encoded logs: :class:`~.admission.Admission`, or behind a channel its intake."""

    def accept(self, key: StreamKey, record: Record, logs: int, callback: Callback | None) -> SendFuture:
        """Accept one send: its encoded logs, joined, and how many they are.

        :raises LogSizeTooLargeError: it cannot fit in a batch, or in the memory.
        :raises MaxBatchCountExceedError: more logs than a batch may hold.
        :raises SendTimeoutError: no memory, or no room in the channel, within ``max_block_ms``.
        :raises ProducerClosedError: after ``close`` began.
        :raises StreamStoppedError: a batch of the ordered stream has failed permanently.
        :raises ChannelError: the channel could not store it, for a disk that is full or fails.
        """

    def accept_pieces(self, pieces: Iterable[Piece], callback: Callback | None) -> list[SendFuture]:
        """Accept many; an error says how far it came."""

    def accept_encoded(self, logs: UnencodedLogs, callback: Callback | None) -> list[SendFuture]:
        """Accept logs that are encoded when there is memory for them."""

    def check_size(self, piece: Piece) -> None:
        """Raise if a piece could never be accepted."""

    def open_records(self, future: SendFuture) -> OpenRecords | None:
        """Return the open batch for the next logs of a send's stream; None if there is none."""


class Sender(Protocol):
    """Takes records over, and sees to it that each of them ends once."""

    @property
    def admission(self) -> Door:
        """Where records enter."""

    def start(self) -> None:
        """Begin to work, once; whoever sends first does so if nobody did before."""

    def seal_stream(self, key: StreamKey) -> None:
        """Send at once what was accepted of a stream; where it is stored first, it goes when it is fed."""

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Why an ordered stream is stopped; None if it is not."""

    def resume(self, key: StreamKey) -> None:
        """Let a stopped stream go on."""

    def flush(self, timeout: float | None) -> None:
        """Wait, for so many seconds at most, until all that was accepted has ended and everybody was told."""

    def flush_until(self, deadline: Deadline, timeout: float | None) -> None:
        """Likewise, until ``deadline``; ``timeout`` is what is said then."""

    def stats(self) -> Stats:
        """What it has done and holds at this moment."""

    def abandon_in_child(self) -> None:
        """After a fork: nobody in this process shall wait for the parent's records."""
