"""Refuse calls that would deadlock: those of a finalizer or signal handler that interrupted the producer."""

from __future__ import annotations

from ..model.errors import ProducerError
from ..runtime.reentry import interrupts_holder


def refuse_reentry() -> None:
    """Refuse to wait if this call interrupted one that holds what the wait needs.

    :raises ProducerError: a finalizer or signal handler interrupted a marked function on this thread.
    """
    if interrupts_holder():
        raise reentered()


def reentered() -> ProducerError:
    """Build the error for a re-entrant call that would deadlock."""
    return ProducerError(
        "a finalizer or a signal handler, which interrupted a call of the producer on this thread, called it again: "
        "nothing was done; let another thread do it"
    )
