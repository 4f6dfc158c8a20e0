"""send_lines: the lines of a block become pieces of about a batch, each encoded and accepted as soon as it is full.

Nothing imports this module before ``send_lines`` is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ..model.errors import InvalidArgumentError, LogSizeTooLargeError
from ..model.futures import SendFuture
from ..model.records import LogItem, StreamKey
from ..model.results import Callback
from ..pipeline.admission import say_how_far
from ..pipeline.batching.accumulator import Piece
from ..pipeline.batching.cut import CutRule
from ..pipeline.sender import Door
from ..text.printable import described
from ..wire.log_group import encode_log
from ..wire.reserved import free_key
from ..wire.speed import encode_lines
from ..wire.text import time_of


class LineSender:
    """Sends blocks to one stream.

    :param door: takes the pieces.
    :param cut: how large a piece is.
    :param field: the name of the logs' only field.
    :param time: of the logs: seconds since the epoch, or an aware datetime; None is ``now``.
    :param now: seconds since the epoch.
    :raises InvalidArgumentError: a name that is not text, a time out of range.
    """

    def __init__(
        self, door: Door, key: StreamKey, cut: CutRule, field: str, time: float | datetime | None, now: int
    ) -> None:
        self._door, self._key, self._cut = door, key, cut
        if not isinstance(field, str):
            raise InvalidArgumentError(
                f"a field's name must be text, got {described(field)} of type {type(field).__qualname__}"
            )
        encode_log({field: ""}, now)  # to say what is wrong with the name
        self._field = free_key(str.encode(field))  # the true characters of subclasses
        self._time = time_of(LogItem({}, time=time), now)

    def send(self, block: Any, callback: Callback | None) -> list[SendFuture]:
        """Send the lines of a block; the futures of their pieces.

        :raises ProducerError: its ``accepted`` and ``accepted_logs`` say how far it came.
        """
        futures: list[SendFuture] = []
        logs = 0
        try:
            for piece in self._pieces(_memory(block)):
                futures.append(self._accept(piece, callback, logs))
                logs += piece.logs
        except BaseException as error:
            say_how_far(error, futures, logs)
            raise
        return futures

    def _accept(self, piece: Piece, callback: Callback | None, line: int) -> SendFuture:
        try:
            return self._door.accept(*piece, callback)
        except LogSizeTooLargeError as error:  # only a line that is alone can be so large
            raise LogSizeTooLargeError(error.size, error.limit, f"line {line} of send_lines: {error.what}") from error

    def _pieces(self, block: bytes | memoryview) -> Iterator[Piece]:
        end = 0
        most_bytes, most_lines = self._cut.piece_bytes, self._cut.piece_count
        while end < len(block):
            records, lines, end = encode_lines(block, end, self._field, *self._time, most_bytes, most_lines, True)
            yield Piece(self._key, records, lines)


def _memory(block: Any) -> bytes | memoryview:
    if type(block) is bytes:  # a subclass may say another length
        return block
    try:
        return memoryview(block).cast("B")
    except (TypeError, ValueError) as error:  # ValueError: it was released
        why = "text.encode() makes bytes of it" if isinstance(block, str) else error
        if hasattr(block, "read"):
            why = "read() gives the bytes of a file opened with mode 'rb'"
        raise InvalidArgumentError(
            f"block: must be bytes, or contiguous memory of bytes, got {type(block).__qualname__}: {why}"
        ) from error
