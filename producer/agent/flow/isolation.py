"""Find the events that alone make a sink fail, so that the others of a delivery are written.

A sink whose destination is down fails for every event. An event that the sink cannot write fails alone. After an error
that a value may cause (:func:`is_of_event`), a delivery is therefore written in halves, down to single events. An event
is to blame only if the sink has written another event of the delivery, and then fails for this one again.

Parts of a batch are tried without its number, since a number identifies a whole batch. Events that the sink wrote
before it failed may therefore be written twice.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Sequence

from ...model.errors import InvalidArgumentError, ProducerError
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.interfaces import Refusal, RefusedError, SinkError

#: Number of single events that may fail before one is written. After that, the sink is to blame.
_MOST_SUSPECTS = 16
_VALUE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, struct.error)
#: Errors of file names that no file system takes.
_NAME_ERRORS = frozenset({errno.ENAMETOOLONG, errno.EILSEQ})

_Write = Callable[[Sequence[EventBatch]], None]


def is_of_event(error: BaseException) -> bool:
    """Return True if an event's value may have caused the error, not the network, the disk or the destination."""
    if isinstance(error, OSError):
        return error.errno in _NAME_ERRORS
    if isinstance(error, ProducerError):
        return isinstance(error, InvalidArgumentError)
    return isinstance(error, _VALUE_ERRORS)


def write_apart(write: _Write, batches: Sequence[EventBatch], error: Exception) -> None:
    """Write as much as possible of a delivery that failed.

    :param write: the sink's ``write``.
    :param error: the error of the whole delivery.
    :raises RefusedError: if some events can never be written.
    :raises SinkError: if the destination failed meanwhile; some batches go back to the channel.
    :raises Exception: ``error``, if nothing can be written.
    """
    trial, suspects, done = _Trial(write), list[EventBatch](), 0
    reason, later = words_of(error), list[EventBatch]()
    try:
        for batch in batches:
            for part in trial.failing(batch):
                suspects.append(part)
                if len(suspects) == _MOST_SUSPECTS and not trial.written:
                    raise error
            done += 1
        if not trial.written:
            raise error
        unfit = [part for part in suspects if not trial.writes(part)]
        trial.refusals += [Refusal(part, words_of(error), undeliverable=True, attempts=0) for part in unfit]
    except Exception as failure:
        if failure is error:
            raise
        reason, open_ones = words_of(failure), {part.sequence for part in suspects}
        later = [*(batch for batch in batches[:done] if batch.sequence in open_ones), *batches[done:]]
    returned = {batch.sequence for batch in later}
    refusals = [refusal for refusal in trial.refusals if refusal.batch.sequence not in returned]
    if refusals:
        raise RefusedError.of(refusals, later)
    if later:
        raise SinkError(reason, later)


class _Trial:
    """The outcome of writing events in parts.

    :ivar written: True if any event was written.
    :ivar refusals: events that the sink refused, with their batches' numbers.
    """

    def __init__(self, write: _Write) -> None:
        self._write = write
        self.written = False
        self.refusals: list[Refusal] = []

    def failing(self, batch: EventBatch) -> Iterator[EventBatch]:
        """Write a batch, in parts if necessary. Yield the single events that cannot be written."""
        parts = [batch]
        while parts:
            part = parts.pop()
            if self.writes(part):
                continue
            if part.count > 1:
                parts += reversed(part.halves())
            else:
                yield part

    def writes(self, part: EventBatch) -> bool:
        """Write some events of a batch. Return True if the sink wrote or refused them.

        :raises Exception: if it failed for another reason than the events.
        """
        try:
            self._write([part.numbered(None)])
        except RefusedError as error:
            if error.later:
                raise
            self.refusals += [each._replace(batch=each.batch.numbered(part.sequence)) for each in error.refusals]
        except Exception as error:
            if not is_of_event(error):
                raise
            return False
        self.written = True
        return True
