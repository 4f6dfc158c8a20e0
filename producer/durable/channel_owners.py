"""The channels that producers of this process own: one channel cannot serve two producers."""

from __future__ import annotations

from ..model.errors import ConfigError
from ..model.interfaces import Channel
from ..runtime.forks import Stage, call_in_child
from ..runtime.locks import Lock

#: The claimed channels by identity, since channels may be user objects without a hash, or that compare equal.
_claimed: dict[int, Channel] = {}
_claiming = Lock()  # guards _claimed


def renew_locks_in_child() -> None:
    """Replace the module's lock in a forked child: a thread of the parent may have held it."""
    global _claiming  # noqa: PLW0603  # a fork is process-wide
    _claiming = Lock()


call_in_child(renew_locks_in_child, Stage.LOCKS)


def claim(*channels: Channel | None) -> None:
    """Claim channels for a producer, all or none.

    :raises ConfigError: another producer owns one of them.
    """
    claims = {id(channel): channel for channel in channels if channel is not None}
    with _claiming:
        taken = [claims[key] for key in claims.keys() & _claimed.keys()]
        if not taken:
            _claimed.update(claims)
    if taken:
        raise ConfigError("channel", "must belong to no other producer that is open", taken[0].name)


def release(*channels: Channel | None) -> None:
    """Release channels; takes no lock, so that it can be called after a fork."""
    for channel in channels:
        _claimed.pop(id(channel), None)
