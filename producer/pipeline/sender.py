"""Sender: the pipeline that the API sends to, either in memory or with a durable channel."""

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
from .batching.accumulator import Piece
from .batching.open_records import OpenRecords


class Door(Protocol):
    """The entries for encoded logs: :class:`~.admission.Admission`, or with a durable channel its intake."""

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
        """Accept many pieces; the ``accepted`` and ``accepted_logs`` of an error say what was accepted."""

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
        """Begin to work, once; the first sender does so unless it was done before."""

    def seal_stream(self, key: StreamKey) -> None:
        """Send a stream's open batch at once. With a durable channel this affects only records that have left the
        channel.
        """

    def stopped(self, key: StreamKey) -> StreamStoppedError | None:
        """Return the error that stopped an ordered stream; None if it is not stopped."""

    def resume(self, key: StreamKey) -> None:
        """Resume a stopped stream."""

    def flush(self, timeout: float | None) -> None:
        """Wait until everything accepted before is completed and its callbacks have run.

        :param timeout: seconds; None to wait forever.
        """

    def flush_until(self, deadline: Deadline, timeout: float | None) -> None:
        """Flush until ``deadline``; ``timeout`` is the limit that the error names."""

    def stats(self) -> Stats:
        """Return the statistics at this moment."""

    def abandon_in_child(self) -> None:
        """Fail all records in a forked child: they belong to the parent."""
