"""StoppedStreams: the ordered streams that stopped because a batch failed permanently.

A stream stays stopped until it is resumed, as long as the producer lives, also if it is opened again. A stream with a
``SequenceKey`` belongs to one handle, and is forgotten with it. The accumulator's lock guards this.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ...model.errors import StreamStoppedError
from ...model.records import StreamKey
from ...model.sequence import Numbering

Line = StreamKey | str


class StoppedStreams:
    """The errors of the stopped streams.

    :ivar any: False if no stream is stopped; an attribute, since it is read for each record.
    """

    def __init__(self) -> None:
        self.any = False
        self._streams: dict[Line, StreamStoppedError] = {}
        self._handles: WeakKeyDictionary[Numbering, StreamStoppedError] = WeakKeyDictionary()

    def add(self, line: Line, error: StreamStoppedError) -> None:
        """Stop a stream; the first error counts."""
        if isinstance(line, Numbering):
            self._handles.setdefault(line, error)
        else:
            self._streams.setdefault(line, error)
        self.any = True

    def get(self, line: Line) -> StreamStoppedError | None:
        """Return the error of a stopped stream, with a traceback of its own; None if it is not stopped."""
        error = self._streams.get(line)
        if error is None and isinstance(line, Numbering):
            error = self._handles.get(line)
        return None if error is None else StreamStoppedError(error.stream, error.first)

    def remove(self, line: Line) -> None:
        """Resume a stream."""
        self._streams.pop(line, None)
        if isinstance(line, Numbering):
            self._handles.pop(line, None)
        self.any = bool(self._streams) or bool(self._handles)
