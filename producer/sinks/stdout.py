"""StdoutSink: prints batches as lines of JSON (see :mod:`producer.wire.json_lines`)."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import TextIO

from ..model.errors import MisconfiguredError, NetworkError
from ..model.interfaces import Delivery, Payload, Receipt, Record, Sink
from ..model.records import StreamKey
from ..runtime.forks import Stage, watch_fork
from ..runtime.locks import Lock
from ..wire.json_lines import json_lines


class StdoutSink(Sink):
    """Prints batches as lines of JSON, one at a time, and flushes after each.

    A batch that failed may have been printed in part: its result has ``may_have_been_stored``.

    Example:

        >>> import io
        >>> from loghub import LogItem, Producer, StdoutSink
        >>> output = io.StringIO()
        >>> with Producer(sink=StdoutSink(output)) as producer:
        ...     future = producer.send("any", "app-log", LogItem({"level": "INFO"}, time=1))
        ...
        >>> '"level": "INFO"' in output.getvalue()
        True

    :param stream: the text stream to print to; None for ``sys.stdout`` at the time of each batch.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._renew_in_child()
        watch_fork(self, Stage.SINKS)

    def _renew_in_child(self) -> None:
        self._lock = Lock()  # held while a batch is printed, else lines mix

    def destination(self, key: StreamKey) -> Hashable:
        return "stdout"

    def encode(self, key: StreamKey, pack_id: str | None, records: Sequence[Record]) -> Payload:
        body = json_lines(key, [bytes(record) for record in records])
        return Payload(body, len(body))

    def write(self, delivery: Delivery) -> Receipt:
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
    if buffer is None:  # a text stream, such as a notebook's
        stream.write(body.decode())
    else:  # UTF-8, whatever the locale says
        stream.flush()
        buffer.write(body)
    stream.flush()
