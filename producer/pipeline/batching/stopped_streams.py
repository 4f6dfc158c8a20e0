"""StoppedStreams: the ordered streams of which a batch failed for good, and why.

A stream is remembered until it is resumed, for as long as the producer lives: whoever opens it again is to hear of it.
One with a ``SequenceKey`` is its handle's alone, and forgotten with it. Guarded by the accumulator's lock.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ...model.errors import StreamStoppedError
from ...model.records import StreamKey
from ...model.sequence import Numbering

Line = StreamKey | str


class StoppedStreams:
    """See the module.

    :ivar any: whether there may be some: an attribute, for those who look with every record.
    """

    def __init__(self) -> None:
        self.any = False
        self._streams: dict[Line, StreamStoppedError] = {}
        self._handles: WeakKeyDictionary[Numbering, StreamStoppedError] = WeakKeyDictionary()

    def add(self, line: Line, error: StreamStoppedError) -> None:
        """Stop it; the first reason counts."""
        if isinstance(line, Numbering):
            self._handles.setdefault(line, error)
        else:
            self._streams.setdefault(line, error)
        self.any = True

    def get(self, line: Line) -> StreamStoppedError | None:
        """Why it is stopped, in an error with a traceback of its own; None if it is not."""
        error = self._streams.get(line)
        if error is None and isinstance(line, Numbering):
            error = self._handles.get(line)
        return None if error is None else StreamStoppedError(error.stream, error.first)

    def remove(self, line: Line) -> None:
        """Let it go on."""
        self._streams.pop(line, None)
        if isinstance(line, Numbering):
            self._handles.pop(line, None)
        self.any = bool(self._streams) or bool(self._handles)
