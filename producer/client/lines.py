"""send_lines: the lines of a block become pieces of about a batch, each enqueued as soon as it is full.

This module is imported by the first call of ``send_lines``.
"""

from __future__ import annotations

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


def send_lines(
    door: Door,
    key: StreamKey,
    cut: CutRule,
    block: Any,
    *,
    field: str,
    time: float | datetime | None,
    now: int,
    callback: Callback | None,
) -> list[SendFuture]:
    """Send the lines of a block to one stream, and return the futures of their pieces.

    :param door: the entry to the pipeline.
    :param cut: the size of a piece.
    :param field: the name of the logs' only field.
    :param time: the time of the logs: seconds since the epoch, or an aware datetime; None for ``now``.
    :param now: seconds since the epoch.
    :raises InvalidArgumentError: not bytes, a name that is not text, or a time out of range.
    :raises ProducerError: its ``accepted`` and ``accepted_logs`` say what was accepted.
    """
    if not isinstance(field, str):
        raise InvalidArgumentError(
            f"a field's name must be text, got {described(field)} of type {type(field).__qualname__}"
        )
    encode_log({field: ""}, now)  # raises an error for an invalid name
    name, moment = free_key(str.encode(field)), time_of(LogItem({}, time=time), now)  # what a subclass really holds
    memory = _memory(block)
    futures: list[SendFuture] = []
    end = line = 0
    try:
        while end < len(memory):
            record, logs, end = encode_lines(memory, end, name, *moment, cut.piece_bytes, cut.piece_count, True)
            futures.append(_accept(door, Piece(key, record, logs), callback, line))
            line += logs
    except BaseException as error:
        attach_accepted(error, futures, line)
        raise
    return futures


def _accept(door: Door, piece: Piece, callback: Callback | None, line: int) -> SendFuture:
    try:
        return door.accept(*piece, callback)
    except LogSizeTooLargeError as error:  # only a single line can be so large
        raise LogSizeTooLargeError(error.size, error.limit, f"line {line} of send_lines: {error.what}") from error


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
