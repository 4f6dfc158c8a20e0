"""Sequencer: numbers the batches of idempotent streams, and judges what the server says of their numbers.

A stream with ``idempotent=True`` has a random hash key and counts its batches from 1. The number is given right before
the first attempt: by then all batches before it are settled. A key is forgotten with the stream's state, when nothing
of the stream is under way; the next batch gets another key, which is as good.

``InvalidSequenceId`` says that the server has seen the number, or a higher one. It means success only if an earlier
request under this number may have stored the batch (see :mod:`..batching.doubt`). Otherwise nobody of ours did:
somebody else uses the key (a copied machine or directory), or something on the way repeated the request. To count that
as success could lose the batch, so it fails, the stream stops, and the next batch gets a new key. With a
``SequenceKey`` it always means success: other processes send the same batches under the same numbers, which is what
such a key is for.
"""

from __future__ import annotations

from contextlib import suppress

from ...model.errors import AttemptError, BodyTooLargeError, InvalidSequenceError, NumberNotNotedError, ServerError
from ...model.interfaces import SequenceId
from ...model.records import IDEMPOTENT, SEQUENCED
from ...wire.put_logs import new_hash_key
from ..batching.batch import ProducerBatch
from ..batching.unconfirmed import REFUSALS_BEFORE_SPLIT, Fate, Unconfirmed
from ..settling.backing import NumberJournal

_NEVER_CUT = (
    "a piece that has a number of its own, or a list of an idempotent stream behind a channel, is never cut: send "
    "smaller ones"
)


class Sequencer:
    """Numbers batches, and tells from answers whether they are stored. Called by the owner of a batch; of a stream's
    batches only one is in flight.

    :param buckets: a power of two: how many of the first bits of a hash key choose the shard.
    :param journal: where numbers are written down; None if they do not survive the process.
    """

    def __init__(self, buckets: int, journal: NumberJournal | None = None) -> None:
        self._buckets = buckets
        self._journal = journal

    def number(self, batch: ProducerBatch) -> None:
        """Give the batch a number if it wants one and has none, and write that down; it is about to be sent.

        :raises NumberNotNotedError: it could not be written down.
        :raises InvalidSequenceError: the server has said already what becomes of it: it must not be sent.
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

    def judged(self, batch: ProducerBatch, error: AttemptError) -> AttemptError | None:
        """What a failed attempt amounts to.

        :returns: None if the server has the batch already; else the error.
        """
        sequence = batch.sequence
        if isinstance(error, InvalidSequenceError):
            return self._judged_number(batch, error)
        if sequence is None:
            return error
        if error.may_have_been_stored:
            self._lost(batch)
        if batch.unconfirmed is not None and error.code == "BadResponse" and not error.retriable:
            # Perhaps what is left of the answer that the number is known: asked again, the server says so whole.
            return ServerError(
                error.code,
                error.message,
                http_status=error.http_status,
                request_id=error.request_id,
                may_have_been_stored=True,
            )
        return self._judged_size(batch, error) if isinstance(error, BodyTooLargeError) else error

    def accepted(self, batch: ProducerBatch) -> None:
        """The server has stored the batch just now."""
        if batch.unconfirmed is None:
            return
        parts = batch.unconfirmed.parts
        batch.unconfirmed.clear()
        if len(parts) > 1 and self._journal is not None:
            # Now: after a restart nobody could tell that the doubt is over. What cannot be written is, when it is sent.
            with suppress(NumberNotNotedError):
                self.number(parts[1])

    @staticmethod
    def undecided(batch: ProducerBatch) -> bool:
        """Whether nobody can tell what became of the batch, nor ever will."""
        unconfirmed = batch.unconfirmed
        return unconfirmed is not None and unconfirmed.answer is not None and unconfirmed.fate_of(batch) is Fate.UNKNOWN

    @staticmethod
    def _lost(batch: ProducerBatch) -> None:
        if batch.unconfirmed is None:
            batch.unconfirmed = Unconfirmed(batch)
        else:
            batch.unconfirmed.lost()

    def _judged_size(self, batch: ProducerBatch, error: BodyTooLargeError) -> AttemptError:
        unconfirmed = batch.unconfirmed
        if unconfirmed is not None and unconfirmed.of_first:
            unconfirmed.refusals += 1
            if unconfirmed.refusals < REFUSALS_BEFORE_SPLIT:
                words = f"{error.message} (an earlier request may have been stored: it is asked about again, uncut)"
                return ServerError(error.code, words, http_status=error.http_status, request_id=error.request_id)
        if batch.log_count > 1 and not self.may_split(batch):
            return _reworded(error, f"{error.message} ({_NEVER_CUT})")
        return error

    def _judged_number(self, batch: ProducerBatch, error: InvalidSequenceError) -> AttemptError | None:
        if batch.key.order.startswith(SEQUENCED):
            return None
        unconfirmed, sequence = batch.unconfirmed, batch.sequence
        if unconfirmed is not None:
            unconfirmed.answer = unconfirmed.answer or error
            return None if unconfirmed.fate_of(batch) is Fate.WRITTEN else _untold(error)
        if sequence is None:
            return error
        batch.stream.sequence = None
        message = (
            f"{error.message} (number {sequence.number} of hash key {sequence.key} was not sent before by this "
            "producer: another process uses the key, such as a copy of this machine, or a proxy repeated the request)"
        )
        return _reworded(error, message, may_have_been_stored=True)

    def may_split(self, batch: ProducerBatch) -> bool:
        """Whether a batch that is too large may be cut."""
        return batch.log_count > 1 and not batch.indivisible


def _untold(error: InvalidSequenceError) -> AttemptError:
    message = (
        f"{error.message} (whether these records are stored cannot be told: a larger batch under the number was in "
        "doubt when it was cut, and so was its first part. Look at what the server has; what is sent after resume() "
        "may be there twice)"
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
