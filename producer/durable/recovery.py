"""Recovery: after a restart, each idempotent stream goes on with the very batch that was in flight.

The feeder asks of every event of an idempotent stream where it belongs. As long as the stream's intent (see
:mod:`.intents`) is not behind it: an event before the batch was settled, though the channel had not heard of it yet,
and is acknowledged without being sent; one of the batch goes into a batch that nothing else may fill, cut or hurry; the
first one behind it ends the recovery. The batch is closed as soon as its last event, or any later one, has been fed, or
when the channel has nothing more to take: of a batch that was settled in part, the rest is sent under the same number.

Used by the feeder's thread alone.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict

from ..model.records import ADOPTED, StreamKey
from ..pipeline.batching.accumulator import LogAccumulator
from ..runtime.loggers import get_logger
from ..text.plural import counted
from .send_journal import Intent, Intents

_log = get_logger("loghub.recovery")

#: Streams whose recovery is known to be over. One that is forgotten is looked up again, which finds what is in flight.
_KNOWN = 4096


class _Stream:
    """A stream that is being recovered."""

    __slots__ = ("formed", "intent", "settled")

    def __init__(self, intent: Intent) -> None:
        self.intent = intent
        self.formed = self.settled = 0


class Recovery:
    """Tells of each event that comes out of the channel whether it belongs to the batch of before the restart.

    :param intents: None for a channel without notes: there is nothing to recover.
    :param accumulator: seals the batch of a stream that has all its events.
    """

    def __init__(self, intents: Intents | None, accumulator: LogAccumulator) -> None:
        self._intents = intents
        self._accumulator = accumulator
        self._streams: dict[StreamKey, _Stream] = {}
        self._known: OrderedDict[StreamKey, None] = OrderedDict()
        #: The last event of each batch that is being formed, and its stream; the next one that will be passed by first.
        self.lasts: list[tuple[int, int, StreamKey]] = []
        self._ties = itertools.count()

    def intent_of(self, key: StreamKey, position: int) -> Intent | None:
        """The intent that is not behind an event, which then stands before the intent's batch or in it; None if there
        is none.
        """
        if self._intents is None or key in self._known:
            return None
        stream = self._streams.get(key) or self._look_up(self._intents, key)
        if stream is None:
            return None
        if position > stream.intent.last:
            self._end(key, stream)
            return None
        if position < stream.intent.first:
            stream.settled += 1
        else:
            stream.formed += 1
            if stream.formed == 1 and not key.order.startswith(ADOPTED):  # whose positions are another channel's
                heapq.heappush(self.lasts, (stream.intent.last, next(self._ties), key))
        return stream.intent

    def fed(self, key: StreamKey, position: int) -> None:
        """An event of the stream's batch was fed."""
        stream = self._streams.get(key)
        if stream is not None and position >= stream.intent.last:
            self._end(key, stream)

    def pass_by(self, sequence: int) -> None:
        """An event with this sequence number comes next: the batches whose last event is before it are complete."""
        while self.lasts and self.lasts[0][0] < sequence:
            _, _, key = heapq.heappop(self.lasts)
            stream = self._streams.get(key)
            if stream is not None:
                self._end(key, stream)

    def end_formed(self) -> None:
        """The channel has nothing more to take: no event that is missing will come."""
        for key, stream in list(self._streams.items()):
            if stream.formed:
                self._end(key, stream)

    def distrust(self, key: StreamKey) -> None:
        """An event of the stream could not be fed."""
        if self._intents is not None:
            self._intents.distrust(key)

    def _look_up(self, intents: Intents, key: StreamKey) -> _Stream | None:
        intent = intents.read(key)
        if intent is None:
            self._know(key)
            return None
        stream = self._streams[key] = _Stream(intent)
        return stream

    def _end(self, key: StreamKey, stream: _Stream) -> None:
        del self._streams[key]
        self._know(key)
        if stream.formed or stream.settled:
            _log.info(
                "%s/%s: %s had been settled; batch %d, of %s, is sent again under its number",
                *key[:2],
                counted(stream.settled, "event"),
                stream.intent.sequence.number,
                counted(stream.formed, "event"),
            )
        if stream.formed:
            self._accumulator.seal_formed(key)

    def _know(self, key: StreamKey) -> None:
        self._known[key] = None
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)
