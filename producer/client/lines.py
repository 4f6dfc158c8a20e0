"""send_lines: the lines of a block become pieces of about a batch, each enqueued as soon as it is full.

This module is imported by the first call of ``send_lines``.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ..model.errors import InvalidArgumentError, LogSizeTooLargeError
from ..model.futures import SendFuture
from ..model.records import LogItem, StreamKey
from ..model.results import Callback
from ..pipeline.admission import attach_accepted
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.cut import CutRule
from ..pipeline.sender import Door
from ..text.printable import described
from ..wire.log_group import encode_log
from ..wire.reserved import free_key
from ..wire.speed import encode_lines
from ..wire.text import time_of


class LineSender:
    """Sends blocks of lines to one stream.

    :param door: the entry to the pipeline.
    :param cut: the size of a piece.
    :param field: the name of the logs' only field.
    :param time: the time of the logs: seconds since the epoch, or an aware datetime; None for ``now``.
    :param now: seconds since the epoch.
    :raises InvalidArgumentError: a name that is not text, or a time out of range.
    """

    def __init__(
        self, door: Door, key: StreamKey, cut: CutRule, field: str, time: float | datetime | None, now: int
    ) -> None:
        self._door, self._key, self._cut = door, key, cut
        if not isinstance(field, str):
            raise InvalidArgumentError(
                f"a field's name must be text, got {described(field)} of type {type(field).__qualname__}"
            )
        encode_log({field: ""}, now)  # raises an error for an invalid name
        self._field = free_key(str.encode(field))  # the characters that a subclass really holds
        self._time = time_of(LogItem({}, time=time), now)

    def send(self, block: Any, callback: Callback | None) -> list[SendFuture]:
        """Send the lines of a block, and return the futures of their pieces.

        :raises ProducerError: its ``accepted`` and ``accepted_logs`` say what was accepted.
        """
        futures: list[SendFuture] = []
        logs = 0
        try:
            for piece in self._pieces(_memory(block)):
                futures.append(self._accept(piece, callback, logs))
                logs += piece.logs
        except BaseException as error:
            attach_accepted(error, futures, logs)
            raise
        return futures

    def _accept(self, piece: Piece, callback: Callback | None, line: int) -> SendFuture:
        try:
            return self._door.accept(*piece, callback)
        except LogSizeTooLargeError as error:  # only a single line can be so large
            raise LogSizeTooLargeError(error.size, error.limit, f"line {line} of send_lines: {error.what}") from error

    def _pieces(self, block: bytes | memoryview) -> Iterator[Piece]:
        end = 0
        most_bytes, most_lines = self._cut.piece_bytes, self._cut.piece_count
        while end < len(block):
            records, lines, end = encode_lines(block, end, self._field, *self._time, most_bytes, most_lines, True)
            yield Piece(self._key, records, lines)


def _memory(block: Any) -> bytes | memoryview:
    if type(block) is bytes:  # a subclass may report another length
        return block
    try:
        return memoryview(block).cast("B")
    except (TypeError, ValueError) as error:  # ValueError: the memoryview was released
        why = "text.encode() makes bytes of it" if isinstance(block, str) else error
        if hasattr(block, "read"):
            why = "read() gives the bytes of a file opened with mode 'rb'"
        raise InvalidArgumentError(
            f"block: must be bytes, or contiguous memory of bytes, got {type(block).__qualname__}: {why}"
        ) from error
