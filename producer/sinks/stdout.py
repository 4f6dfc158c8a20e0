"""StdoutSink: batches become lines of JSON on the standard output (see :mod:`producer.wire.json_lines`)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable, Sequence
from typing import TextIO

from ..model.errors import MisconfiguredError, NetworkError
from ..model.interfaces import Delivery, Payload, Receipt, Record, Sink
from ..model.records import StreamKey
from ..runtime.forks import Stage, watch_fork
from ..wire.json_lines import json_lines


class StdoutSink(Sink):
    """Prints batches, one at a time; each is flushed.

    Of one that failed nobody knows how much came out: it may have been stored.

    :param stream: where to; None is ``sys.stdout`` at that moment.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._renew_in_child()
        watch_fork(self, Stage.SINKS)

    def _renew_in_child(self) -> None:
        """A thread of the parent may hold the lock."""
        self._lock = threading.Lock()  # held while a batch is printed, so that lines do not mix

    def destination(self, key: StreamKey) -> Hashable:
        """There is one."""
        return "stdout"

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        """Lines of JSON."""
        body = json_lines(key, [bytes(record) for record in records])
        return Payload(body, len(body))

    def write(self, delivery: Delivery) -> Receipt:
        """Print the lines of a batch."""
        stream = self._stream or sys.stdout
        if stream is None or stream.closed:
            raise MisconfiguredError("WriteError", "the standard output is closed")
        try:
            with self._lock:
                _print(stream, delivery.payload.body)
        except OSError as error:
            message = f"the standard output: {error.strerror or error}"
            raise NetworkError("WriteError", message, may_have_been_stored=True) from error
        return Receipt(http_status=None)


def _print(stream: TextIO, body: bytes) -> None:
    buffer = getattr(stream, "buffer", None)
    if buffer is None:  # text only, such as a notebook's
        stream.write(body.decode())
    else:  # UTF-8, whatever the locale says
        stream.flush()
        buffer.write(body)
    stream.flush()
