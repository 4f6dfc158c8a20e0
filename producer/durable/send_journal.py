"""Intents: the journal of idempotent streams, kept in the channel: each batch is noted before it is sent.

Each stream has one note: the hash key, the number, and the positions of the first and the last event of the batch in
flight. A position is the event's sequence number in the channel. An event that was adopted from the channel of a
process that died keeps the number it had there, and belongs to a stream of its own.

So the next producer on the channel knows the state of every event of the stream. An event before the batch was
completed, since a stream has one batch in flight and stops at a failure. An event in the batch has to be sent in the
same batch under the same number. An event after it was never sent. :mod:`.recovery` uses this.

The name of a note is a digest of the stream's names; the value::

    16 bytes  the hash key
    8 bytes   the number of the batch, big-endian
    8 and 8   the positions of its first and its last event, big-endian
    1 byte    01 if it was split while unconfirmed: the first of its events may have been sent under the number
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
#: The maximum number of notes that are kept, of about 150 bytes each; beyond it, the longest unused ones of streams
#: with nothing in flight are removed.
MAX_NOTES = 16_384
#: How often the number of notes is checked, in writes.
_WRITES_PER_CHECK = 1024


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch that was about to be sent.

    :ivar sequence: its hash key and number.
    :ivar first: the position of its first event.
    :ivar last: the position of its last event.
    :ivar cut: True if the first of its events may have been sent without the others.
    """

    sequence: SequenceId
    first: int
    last: int
    cut: bool = False

    @property
    def before(self) -> SentBefore:
        """The key and number that its batch may have been sent under."""
        return SentBefore(self.sequence, self.cut)

    def to_bytes(self) -> bytes:
        """Return the value of a note."""
        value = _VALUE.pack(bytes.fromhex(self.sequence.key), self.sequence.number, self.first, self.last)
        return value + _CUT if self.cut else value

    @classmethod
    def from_bytes(cls, value: bytes) -> Intent:
        """Return the intent of a note.

        :raises ValueError: not the value of a note.
        """
        end = value[_VALUE.size :]
        if len(value) < _VALUE.size or end not in (b"", _CUT):
            raise ValueError(
                f"a note of {len(value)} bytes is invalid: {_VALUE.size} are needed, and one more for a split batch"
            )
        key, number, first, last = _VALUE.unpack_from(value)
        return cls(SequenceId(key.hex(), number), first, last, end == _CUT)


@lru_cache(maxsize=4096)
def note_name(key: StreamKey) -> str:
    """Return the name of a stream's note; for an adopted stream it ends in ``@`` and the identity of the former
    channel.
    """
    names = json.dumps(
        key[:-1],  # all but its order
        ensure_ascii=True,
        separators=(",", ":"),
    )
    origin = key.order.removeprefix(ADOPTED) if key.order.startswith(ADOPTED) else ""
    return hashlib.sha256(names.encode()).hexdigest()[:32] + (f"@{origin}" if origin else "")


class Intents:
    """The journal of idempotent streams: implements :class:`~producer.pipeline.settling.backing.NumberJournal`.

    :param notes: the notes of the channel.
    :ivar accumulator: has the batches that are not completed; None until the pipeline is made.
    """

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.accumulator: LogAccumulator | None = None
        self._writes = 0
        self._distrusted: set[str] = set()

    def write(self, batch: ProducerBatch, sequence: SequenceId) -> None:
        """Write the number under which ``batch`` is about to be sent.

        :raises NumberNotNotedError: it could not be written; the batch must not be sent.
        """
        name = note_name(batch.key)
        if name in self._distrusted:
            return
        whole, unconfirmed = batch, batch.unconfirmed
        if unconfirmed is not None:  # the fate of the other parts depends on this one
            whole = unconfirmed.parts[-1]
        first, last = tickets_of(batch)[0], tickets_of(whole)[-1]
        cut = unconfirmed is not None and (whole is not batch or unconfirmed.shorter)
        intent = Intent(sequence, first.position, last.position, cut)
        try:
            self._notes.write(name, intent.to_bytes(), last.sequence)
            if name in self._distrusted:  # distrusted by another thread meanwhile
                self._notes.remove(name)
            self._writes += 1
            if self._writes % _WRITES_PER_CHECK == 0:
                self._prune()
        except ChannelError as error:
            raise NumberNotNotedError("NumberNotNoted", str(error)) from error

    def _prune(self) -> None:
        in_flight = () if self.accumulator is None else self.accumulator.incomplete()
        keys = {batch.key for batch in in_flight if batch.sequence is not None}
        self._notes.prune(MAX_NOTES, map(note_name, keys))

    def read(self, key: StreamKey) -> Intent | None:
        """Return the last intent of a stream; None if it has no note."""
        try:
            value = self._notes.read(note_name(key))
            return None if value is None else Intent.from_bytes(value)
        except (ChannelError, ValueError) as error:
            _log.error(
                "%s/%s: cannot read the note of the batch in flight (%s); duplicates are possible", *key[:2], error
            )
            return None

    def distrust(self, key: StreamKey) -> None:
        """Remove the note of a stream, permanently: a bug skipped one of its events, so no note would be true."""
        self._distrusted.add(note_name(key))
        try:
            self._notes.remove(note_name(key))
        except ChannelError as error:
            _log.error("%s/%s: the stream's note could not be removed: %s", *key[:2], error)
