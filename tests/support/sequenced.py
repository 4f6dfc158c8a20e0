"""A sink that keeps the numbers of idempotent batches as LogHub does."""

from __future__ import annotations

from producer.errors import AttemptError, BodyTooLargeError, InvalidSequenceError
from producer.interfaces import Delivery, Receipt
from producer.testing import RecordingSink


class Server(RecordingSink):
    """Keeps the last number of each hash key; nothing of it is lost when a producer dies.

    :param script: for each attempt what happens to its answer: None; an error in place of it; an error after storing,
        where that is one that may have been stored. A batch of one log is never too large, nor one that
        was stored before.
    :ivar last: numbers, by hash key.
    :ivar attempts: every delivery.
    """

    def __init__(self, *script: AttemptError | None) -> None:
        super().__init__()
        self.script = list(script)
        self.last: dict[str, int] = {}
        self.attempts: list[Delivery] = []

    def write(self, delivery: Delivery) -> Receipt:
        """Refuse numbers that are not above the last; then follow the script."""
        self.attempts.append(delivery)
        error = self.script.pop(0) if self.script else None
        if error is not None and not error.may_have_been_stored and not isinstance(error, BodyTooLargeError):
            raise error
        sequence = delivery.sequence
        known = sequence is not None and sequence.number <= self.last.get(sequence.key, 0)
        if isinstance(error, BodyTooLargeError) and len(self.decode(delivery.payload)) > 1 and not known:
            raise error
        if sequence is not None:
            if known:
                raise InvalidSequenceError("InvalidSequenceId", "not above the last", http_status=400, request_id="r")
            self.last[sequence.key] = sequence.number
        receipt = super().write(delivery)
        if error is not None and error.may_have_been_stored:
            raise error
        return receipt

    def numbers(self) -> list[int]:
        """The number of each delivery that was stored."""
        return [delivery.sequence.number for delivery in self.deliveries if delivery.sequence is not None]
