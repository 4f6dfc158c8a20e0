"""Sequencer: numbers the batches of idempotent streams, and interprets the server's answers about their numbers.

A stream with ``idempotent=True`` has a random hash key and counts its batches from 1. A batch gets its number right
before its first attempt, when all earlier batches are completed. A key is forgotten with the stream's state, when the
stream has no batch; the next batch gets another key.

``InvalidSequenceId`` says that the server has seen the number, or a higher one. It means success only if an earlier
request under this number may have stored the batch (see :mod:`..batching.unconfirmed`). Otherwise another writer uses
the key (a copied machine or directory), or a proxy repeated the request. Counting that as success could lose the batch.
So the batch fails, the stream stops, and the next batch gets a new key. With a ``SequenceKey`` the error always means
success: other processes may send the same batches under the same numbers, as intended.
"""

from __future__ import annotations

from contextlib import suppress

from ...model.errors import AttemptError, BodyTooLargeError, InvalidSequenceError, NumberNotNotedError, ServerError
from ...model.interfaces import SequenceId
from ...model.records import IDEMPOTENT, SEQUENCED
from ...wire.put_logs import new_hash_key
from ..batching.batch import ProducerBatch
from ..batching.unconfirmed import REFUSALS_BEFORE_SPLIT, Unconfirmed
from ..settling.backing import NumberJournal

_NEVER_CUT = (
    "a piece with a number of its own, or a list of an idempotent stream with a channel, is never split: send "
    "smaller ones"
)


class Sequencer:
    """Numbers batches, and decides from answers whether they are stored.

    The owner of a batch calls it; each stream has only one batch in flight.

    :param buckets: a power of two: its bits at the start of a hash key choose the shard.
    :param journal: keeps the numbers; None if they do not survive the process.
    """

    def __init__(self, buckets: int, journal: NumberJournal | None = None) -> None:
        self._buckets = buckets
        self._journal = journal

    def number(self, batch: ProducerBatch) -> None:
        """Give a batch that needs one its number, and write it to the journal, before the batch is sent.

        :raises NumberNotNotedError: the number could not be written.
        :raises InvalidSequenceError: the server's answer already decides the fate of the batch: it must not be sent.
        """
        if batch.unconfirmed is not None and batch.unconfirmed.answer is not None:
            raise batch.unconfirmed.answer
        if batch.noted or not batch.key.order.startswith(IDEMPOTENT):
            return
        sequence = batch.sequence or self._next(batch)
        if self._journal is not None:
            self._journal.write(batch, sequence)
        batch.sequence = batch.stream.sequence = sequence
        batch.noted = True

    def _next(self, batch: ProducerBatch) -> SequenceId:
        last = batch.stream.sequence
        if last is None:
            last = SequenceId(new_hash_key(batch.key.shard_hash, self._buckets), 0)
        return SequenceId(last.key, last.number + 1)

    def error_of(self, batch: ProducerBatch, error: AttemptError) -> AttemptError | None:
        """Return the error that a failed attempt amounts to; None if the server already has the batch."""
        sequence = batch.sequence
        if isinstance(error, InvalidSequenceError):
            return self._error_of_number(batch, error)
        if sequence is None:
            return error
        if error.may_have_been_stored:
            self._lost(batch)
        if batch.unconfirmed is not None and error.code == "BadResponse" and not error.retriable:
            # The rest of the response may have said that the number is known: when asked again, the server says so in
            # full.
            return ServerError(
                error.code,
                error.message,
                http_status=error.http_status,
                request_id=error.request_id,
                may_have_been_stored=True,
            )
        return self._error_of_size(batch, error) if isinstance(error, BodyTooLargeError) else error

    def accepted(self, batch: ProducerBatch) -> None:
        """Note that the server has just stored the batch."""
        if batch.unconfirmed is None:
            return
        parts = batch.unconfirmed.parts
        batch.unconfirmed.clear()
        if len(parts) > 1 and self._journal is not None:
            # Written at once: after a restart nothing else shows that the number is confirmed. If that fails, it is
            # written when the part is sent.
            with suppress(NumberNotNotedError):
                self.number(parts[1])

    @staticmethod
    def undecided(batch: ProducerBatch) -> bool:
        """True if it will never be known whether the batch was stored."""
        unconfirmed = batch.unconfirmed
        return unconfirmed is not None and unconfirmed.answer is not None and not unconfirmed.is_stored(batch)

    @staticmethod
    def _lost(batch: ProducerBatch) -> None:
        if batch.unconfirmed is None:
            batch.unconfirmed = Unconfirmed(batch)
        else:
            batch.unconfirmed.lost()

    def _error_of_size(self, batch: ProducerBatch, error: BodyTooLargeError) -> AttemptError:
        unconfirmed = batch.unconfirmed
        if unconfirmed is not None and unconfirmed.of_first:
            unconfirmed.refusals += 1
            if unconfirmed.refusals < REFUSALS_BEFORE_SPLIT:
                words = f"{error.message} (an earlier request may have been stored: the batch is repeated unchanged)"
                return ServerError(error.code, words, http_status=error.http_status, request_id=error.request_id)
        if batch.log_count > 1 and not self.may_split(batch):
            return _reworded(error, f"{error.message} ({_NEVER_CUT})")
        return error

    def _error_of_number(self, batch: ProducerBatch, error: InvalidSequenceError) -> AttemptError | None:
        if batch.key.order.startswith(SEQUENCED):
            return None
        unconfirmed, sequence = batch.unconfirmed, batch.sequence
        if unconfirmed is not None:
            unconfirmed.answer = unconfirmed.answer or error
            return None if unconfirmed.is_stored(batch) else _undecidable(error)
        if sequence is None:
            return error
        batch.stream.sequence = None
        message = (
            f"{error.message} (number {sequence.number} of hash key {sequence.key} was not sent before by this "
            "producer: another process uses the key, such as a copy of this machine, or a proxy repeated the request)"
        )
        return _reworded(error, message, may_have_been_stored=True)

    def may_split(self, batch: ProducerBatch) -> bool:
        """True if a batch that is too large may be split."""
        return batch.log_count > 1 and not batch.indivisible


def _undecidable(error: InvalidSequenceError) -> AttemptError:
    message = (
        f"{error.message} (it is unknown whether these records are stored: responses to a larger batch under the "
        "number, and to its first part, were lost. Check the server; records sent after resume() may be duplicates)"
    )
    return _reworded(error, message, may_have_been_stored=True)


def _reworded(error: AttemptError, message: str, *, may_have_been_stored: bool | None = None) -> AttemptError:
    return type(error)(
        error.code,
        message,
        http_status=error.http_status,
        request_id=error.request_id,
        may_have_been_stored=error.may_have_been_stored if may_have_been_stored is None else may_have_been_stored,
    )
