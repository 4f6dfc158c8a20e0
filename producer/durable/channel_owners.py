"""Which channels the producers of this process have: one channel cannot serve two."""

from __future__ import annotations

import threading

from ..model.errors import ConfigError
from ..model.interfaces import Channel
from ..runtime.forks import Stage, call_in_child

#: By their identity: they are somebody else's objects, which may have no hash, or compare equal.
_claimed: dict[int, Channel] = {}
_claiming = threading.Lock()  # guards _claimed


def renew_locks_in_child() -> None:
    """Replace the module's lock, which a thread of the parent may have held."""
    global _claiming  # noqa: PLW0603  # a fork is process-wide
    _claiming = threading.Lock()


call_in_child(renew_locks_in_child, Stage.LOCKS)


def claim(*channels: Channel | None) -> None:
    """Take these for a producer, all or none.

    :raises ConfigError: another producer has one of them.
    """
    claims = {id(channel): channel for channel in channels if channel is not None}
    with _claiming:
        taken = [claims[key] for key in claims.keys() & _claimed.keys()]
        if not taken:
            _claimed.update(claims)
    if taken:
        raise ConfigError("channel", "must belong to no other producer that is open", taken[0].name)


def give_up(*channels: Channel | None) -> None:
    """Let others have these; takes no lock, so that it can be called after a fork."""
    for channel in channels:
        _claimed.pop(id(channel), None)
