"""Origins: under which name a destination knows the numbers of a channel's batches.

LogHub stores a number only once, for each name. So the same number under the same name has to be the same batch, for
all time. A channel's numbers alone are not: one that was damaged, that lost its newest events with the machine, or that
was restored from a copy gives again what it has given. So the numbers that it gives from one opening to the next have a
name of their own. Which these are is kept in its notes: for each opening the first number, and the name::

    origin:00000000000000000000   4be1…
    origin:00000000000000001207   90c3…

What it holds when it is opened again keeps its name and number: so what is delivered again is known again.
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
#: Of a channel that never held anything.
_FIRST_NUMBER = 1


class Origins:
    """See the module.

    :param rows: first numbers and names, in order; at least one.
    """

    def __init__(self, rows: Sequence[tuple[int, str]]) -> None:
        self._firsts, self._names = [first for first, _ in rows], [name for _, name in rows]

    def of(self, sequence: int) -> str:
        """The name of a number."""
        return self._names[max(0, bisect_right(self._firsts, sequence) - 1)]


def new_origins() -> Origins:
    """Those of a channel that forgets. What it has spilled has numbers of its own, which are lower, and come later."""
    return Origins([(first, secrets.token_hex(16)) for first in (0, MEMORY_NUMBERS)])


def kept_origins(channel: str, notes: Notes, lowest: int, following: int, before: str) -> Origins:
    """Those of a channel that is opened; what they are from now on is noted.

    :param channel: its name, for messages.
    :param lowest: the lowest number in the channel.
    :param following: the one that is given next.
    :param before: the name of numbers of which no opening is noted.
    :raises ChannelIOError: they cannot be noted.
    """
    noted = {int(name.removeprefix(_PREFIX)): value.decode() for name, value in notes.items(_PREFIX).items()}
    if not noted and following > _FIRST_NUMBER:
        _log.error(
            "channel %s: its notes are missing: what its sinks were delivering at the last end may be stored twice",
            channel,
        )
    rows = sorted({0: before, **noted}.items())
    # Those of numbers that will be given again go, and those that nobody asks for any more.
    known = [row for row, after in zip(rows, [*rows[1:], (following, "")], strict=True) if lowest < after[0]]
    known = [row for row in known if row[0] < following]
    new = following, secrets.token_hex(16)
    notes.write_many([(f"{_PREFIX}{new[0]:020d}", new[1].encode(), -1)])
    for first in noted.keys() - {first for first, _ in [*known, new]}:
        notes.remove(f"{_PREFIX}{first:020d}")
    return Origins([*known, new])
