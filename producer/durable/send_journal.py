"""Intents: what idempotent streams are about to send, written down in the channel before they send it.

For a stream there is one note: the hash key, the number, and the positions of the first and the last event of the
batch that is in flight. A position is the channel's sequence number of an event; of one that was adopted from the
channel of a process that died, it is the number that the event had there, and the stream is one of its own.

So the next producer on the channel knows of every event of the stream where it stands: what is before the batch was
settled, for a stream has one batch in flight at a time and stops at one that failed; what is in it has to be sent as
the same batch under the same number; what is behind it was never sent. See :mod:`.recovery`.

The name of a note is a digest of the stream's names; the value::

    16 bytes  the hash key
    8 bytes   the number of the batch, big-endian
    8 and 8   the positions of its first and its last event, big-endian
    1 byte    01 if it was cut while it was in doubt: the first of its events may have been sent under the number
              without the others; else it is left out
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

from ..model.errors import ChannelError, NumberNotNotedError
from ..model.interfaces import Notes, SequenceId
from ..model.records import ADOPTED, StreamKey
from ..pipeline.batching.accumulator import LogAccumulator
from ..pipeline.batching.batch import ProducerBatch
from ..pipeline.batching.unconfirmed import SentBefore
from ..runtime.loggers import get_logger
from .event_ref import tickets_of

_log = get_logger("loghub.intents")

_VALUE = Struct(">16sQQQ")
_CUT = b"\x01"
#: Notes that are kept; the longest unused of streams with nothing in flight are removed beyond it. About 150 bytes
#: each.
MAX_NOTES = 16_384
#: How often their number is looked at, in writes.
_LOOK_EVERY = 1024


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was about to be sent.

    :ivar sequence: its hash key and number.
    :ivar first: the position of its first event.
    :ivar last: the position of its last one.
    :ivar cut: whether the first of its events may have been sent without the others.
    """

    sequence: SequenceId
    first: int
    last: int
    cut: bool = False

    @property
    def before(self) -> SentBefore:
        """What its batch may have been sent under."""
        return SentBefore(self.sequence, self.cut)

    def to_bytes(self) -> bytes:
        """As it stands in a note."""
        value = _VALUE.pack(bytes.fromhex(self.sequence.key), self.sequence.number, self.first, self.last)
        return value + _CUT if self.cut else value

    @classmethod
    def from_bytes(cls, value: bytes) -> Intent:
        """From a note.

        :raises ValueError: it is none.
        """
        end = value[_VALUE.size :]
        if len(value) < _VALUE.size or end not in (b"", _CUT):
            raise ValueError(f"{len(value)} bytes are no intent, which has {_VALUE.size}, and one more if it is cut")
        key, number, first, last = _VALUE.unpack_from(value)
        return cls(SequenceId(key.hex(), number), first, last, end == _CUT)


@lru_cache(maxsize=4096)
def note_name(key: StreamKey) -> str:
    """The name of a stream's note; ends in ``@`` and where it came from, if it was adopted."""
    names = json.dumps(
        key[:-1],  # all but its order
        ensure_ascii=True,
        separators=(",", ":"),
    )
    origin = key.order.removeprefix(ADOPTED) if key.order.startswith(ADOPTED) else ""
    return hashlib.sha256(names.encode()).hexdigest()[:32] + (f"@{origin}" if origin else "")


class Intents:
    """The journal of idempotent streams: implements :class:`~producer.pipeline.settling.backing.NumberJournal`.

    :param notes: of the channel.
    :ivar accumulator: knows the batches that are not settled; None until the pipeline is made.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.accumulator: LogAccumulator | None = None
        self._writes = 0
        self._distrusted: set[str] = set()

    def write(self, batch: ProducerBatch, sequence: SequenceId) -> None:
        """``batch`` is about to be sent under this number.

        :raises NumberNotNotedError: that could not be written down; it must not be sent.
        """
        name = note_name(batch.key)
        if name in self._distrusted:
            return
        whole, unconfirmed = batch, batch.unconfirmed
        if unconfirmed is not None:  # the other parts stand and fall with it
            whole = unconfirmed.parts[-1]
        first, last = tickets_of(batch)[0], tickets_of(whole)[-1]
        cut = unconfirmed is not None and (whole is not batch or unconfirmed.shorter)
        intent = Intent(sequence, first.position, last.position, cut)
        try:
            self._notes.write(name, intent.to_bytes(), last.sequence)
            if name in self._distrusted:  # since a moment ago
                self._notes.remove(name)
            self._writes += 1
            if self._writes % _LOOK_EVERY == 0:
                self._prune()
        except ChannelError as error:
            raise NumberNotNotedError("NumberNotNoted", str(error)) from error

    def _prune(self) -> None:
        in_flight = () if self.accumulator is None else self.accumulator.incomplete()
        keys = {batch.key for batch in in_flight if batch.sequence is not None}
        self._notes.prune(MAX_NOTES, map(note_name, keys))

    def read(self, key: StreamKey) -> Intent | None:
        """What a stream was about to send when its note was written last; None if nobody knows."""
        try:
            value = self._notes.read(note_name(key))
            return None if value is None else Intent.from_bytes(value)
        except (ChannelError, ValueError) as error:
            _log.error(
                "%s/%s: what the stream was about to send is not known (%s): it may be stored twice", *key[:2], error
            )
            return None

    def distrust(self, key: StreamKey) -> None:
        """An event of the stream was passed over, for a bug: what any note would say of it would not be true, so there
        are none any more.
        """
        self._distrusted.add(note_name(key))
        try:
            self._notes.remove(note_name(key))
        except ChannelError as error:
            _log.error("%s/%s: the stream's note could not be removed: %s", *key[:2], error)
