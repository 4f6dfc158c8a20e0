"""Recovery: after a restart, each idempotent stream continues with the exact batch that was in flight.

The feeder asks where each event of an idempotent stream belongs, until an event after the stream's intent (see
:mod:`.send_journal`) comes:

- An event before the batch was delivered or failed, but not acknowledged; it is acknowledged without being sent.
- An event of the batch goes into a batch that takes no other records, and is neither split nor sealed early.
- The first event after the batch ends the recovery.

The batch is sealed when its last event or a later one has been fed, or when the channel is empty. If a part of the
batch was acknowledged before, the rest is sent under the same number.

Used by the feeder's thread only.
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

#: How many streams with a finished recovery are remembered. A forgotten stream is looked up again, with the same
#: result.
_KNOWN = 4096


class _Stream:
    """A stream that is being recovered."""

    __slots__ = ("formed", "intent", "settled")

    def __init__(self, intent: Intent) -> None:
        self.intent = intent
        self.formed = self.settled = 0


class Recovery:
    """Decides for each event of the channel whether it belongs to a batch that was in flight before the restart.

    :param intents: the journal; None for a channel without notes, where nothing can be recovered.
    :param accumulator: seals the rebuilt batch of a stream that has all its events.
    """

    def __init__(self, intents: Intents | None, accumulator: LogAccumulator) -> None:
        self._intents = intents
        self._accumulator = accumulator
        self._streams: dict[StreamKey, _Stream] = {}
        self._known: OrderedDict[StreamKey, None] = OrderedDict()
        #: The last event of each batch that is being rebuilt, with its stream, the lowest first.
        self.lasts: list[tuple[int, int, StreamKey]] = []
        self._ties = itertools.count()

    def intent_of(self, key: StreamKey, position: int) -> Intent | None:
        """Return the intent of an event's stream if the event is in the intent's batch or before it; else None."""
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
            if stream.formed == 1 and not key.order.startswith(ADOPTED):  # whose positions are those of another channel
                heapq.heappush(self.lasts, (stream.intent.last, next(self._ties), key))
        return stream.intent

    def fed(self, key: StreamKey, position: int) -> None:
        """Note that an event of the stream's batch was fed."""
        stream = self._streams.get(key)
        if stream is not None and position >= stream.intent.last:
            self._end(key, stream)

    def seal_passed(self, sequence: int) -> None:
        """Seal the batches whose last event is before this sequence number, which is fed next."""
        while self.lasts and self.lasts[0][0] < sequence:
            _, _, key = heapq.heappop(self.lasts)
            stream = self._streams.get(key)
            if stream is not None:
                self._end(key, stream)

    def end_formed(self) -> None:
        """Seal all rebuilt batches: the channel is empty, so no missing event will come."""
        for key, stream in list(self._streams.items()):
            if stream.formed:
                self._end(key, stream)

    def distrust(self, key: StreamKey) -> None:
        """Forget the intent of a stream, one of whose events could not be fed."""
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
                "%s/%s: %s had been completed before the restart; sending batch %d, of %s, again under its number",
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
