"""Origins identify the numbers of a channel's batches for a destination.

LogHub stores a number only once for each origin. So the same number with the same origin must be the same batch for all
time. A channel's numbers alone do not ensure that. A channel that was damaged, lost its newest events in a power cut,
or was restored from a copy assigns numbers again. So the numbers assigned between two openings have an origin of their
own. The channel's notes have the first number and the origin of each opening::

    origin:00000000000000000000   4be1…
    origin:00000000000000001207   90c3…

A batch in the channel keeps its origin and number across openings, so that a second delivery is recognized.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Sequence

from ...channels.spillable import MEMORY_NUMBERS
from ...model.interfaces import Notes
from ...runtime.loggers import get_logger

_log = get_logger("loghub.agent.channel")

_PREFIX = "origin:"
#: The first number of a new channel.
_FIRST_NUMBER = 1


class Origins:
    """The origins of a channel's numbers.

    :param rows: first numbers and origins, in order; at least one.
    """

    def __init__(self, rows: Sequence[tuple[int, str]]) -> None:
        self._firsts, self._names = [first for first, _ in rows], [name for _, name in rows]

    def of(self, sequence: int) -> str:
        """Return the origin of a number."""
        return self._names[max(0, bisect_right(self._firsts, sequence) - 1)]


def new_origins() -> Origins:
    """Create origins for a channel that does not keep its events.

    Spilled events have lower numbers than those in memory, and are delivered later.
    """
    return Origins([(first, secrets.token_hex(16)) for first in (0, MEMORY_NUMBERS)])


def kept_origins(channel: str, notes: Notes, lowest: int, following: int, before: str) -> Origins:
    """Read the origins of a channel that is opened, and note a new one.

    :param channel: the channel's name, for messages.
    :param lowest: the lowest number in the channel.
    :param following: the next number to be assigned.
    :param before: the origin of numbers older than the first noted opening.
    :raises ChannelIOError: if the new origin cannot be noted.
    """
    noted = {int(name.removeprefix(_PREFIX)): value.decode() for name, value in notes.items(_PREFIX).items()}
    if not noted and following > _FIRST_NUMBER:
        _log.error(
            "channel %s: its notes are missing: batches in flight at its last end may be stored twice",
            channel,
        )
    rows = sorted({0: before, **noted}.items())
    # Drop origins of numbers that will be assigned again, and of numbers no longer in the channel.
    known = [row for row, after in zip(rows, [*rows[1:], (following, "")], strict=True) if lowest < after[0]]
    known = [row for row in known if row[0] < following]
    new = following, secrets.token_hex(16)
    notes.write_many([(f"{_PREFIX}{new[0]:020d}", new[1].encode(), -1)])
    for first in noted.keys() - {first for first, _ in [*known, new]}:
        notes.remove(f"{_PREFIX}{first:020d}")
    return Origins([*known, new])
