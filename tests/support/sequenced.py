"""Provide a sink that keeps the sequence numbers of idempotent batches as LogHub does."""

from producer.model.errors import AttemptError, BodyTooLargeError, InvalidSequenceError
from producer.model.interfaces import Delivery, Receipt
from producer.testing import RecordingSink


class Server(RecordingSink):
    """A sink that keeps the last sequence number of each hash key, and outlives producers.

    :param script: for each attempt what happens to its answer: None; an error in place of it; an error after storing,
        where that is one that may have been stored. A batch of one log is never too large; of a larger one the size
        is looked at before the number.
    :ivar last: numbers, by hash key.
    :ivar attempts: every delivery.
    """

    def __init__(self, *script: AttemptError | None) -> None:
        super().__init__()
        self.script = list(script)
        self.last: dict[str, int] = {}
        self.attempts: list[Delivery] = []

    def write(self, delivery: Delivery) -> Receipt:
        """Refuse numbers that are not above the last one; then follow the script."""
        self.attempts.append(delivery)
        error = self.script.pop(0) if self.script else None
        if error is not None and not error.may_have_been_stored and not isinstance(error, BodyTooLargeError):
            raise error
        if isinstance(error, BodyTooLargeError) and len(self.decode(delivery.payload)) > 1:
            raise error
        sequence = delivery.sequence
        if sequence is not None:
            if sequence.number <= self.last.get(sequence.key, 0):
                raise InvalidSequenceError("InvalidSequenceId", "not above the last", http_status=400, request_id="r")
            self.last[sequence.key] = sequence.number
        receipt = super().write(delivery)
        if error is not None and error.may_have_been_stored:
            raise error
        return receipt

    def numbers(self) -> list[int]:
        """Return the number of each stored delivery."""
        return [delivery.sequence.number for delivery in self.deliveries if delivery.sequence is not None]
