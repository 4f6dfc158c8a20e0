"""StreamState: a stream between its batches."""

from __future__ import annotations

from ...model.interfaces import SequenceId


class StreamState:
    """The state of one stream across its batches; guarded by the accumulator's lock.

    :ivar context: the prefix of its pack ids; a new one each time a forgotten stream is used again.
    :ivar next_number: the number of its next batch.
    :ivar alive: the number of its batches that are not completed.
    :ivar idle_since: when the last of them was completed, monotonic seconds.
    :ivar turn: its turn among the streams of its destination, bytes; guarded by the IO pool's lock.
    :ivar sequence: the newest sequence number of an idempotent stream; None before the first. Used by the owner of the
        one batch in flight.
    """

    __slots__ = ("accepted", "alive", "context", "delivered", "failed", "idle_since", "next_number", "sequence", "turn")

    def __init__(self, context: str) -> None:
        self.context = context
        self.next_number = 0
        self.accepted = self.delivered = self.failed = 0
        self.alive = 0
        self.idle_since = 0.0
        self.turn = 0.0
        self.sequence: SequenceId | None = None
