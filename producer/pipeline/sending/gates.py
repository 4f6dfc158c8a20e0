"""Gates: pause sending to destinations and logstores that refuse.

Every destination has a gate, and every logstore of it another; a batch passes both. A gate admits as many concurrent
attempts as its limit allows (see ``concurrency``), and closes when the other side refuses::

    OPEN ──refusal──► HELD ──its time is over──► HALF_OPEN ──another answer──► OPEN
                       ▲                             │
                       └──────────refusal────────────┘   twice as long as before

A half-open gate admits one attempt, the probe, whose outcome decides for all waiting batches. A thousand batches for a
dead server make one request now and then, and not one each.

A quota is counted for each logstore, so it closes the gate of the logstore, and so does a fault that an operator has to
fix. An endpoint that cannot be reached closes the gate of its destination, as defined by
:meth:`~producer.model.interfaces.Sink.destination`. Two endpoints of one project are two destinations.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from ...model.errors import (
    AttemptError,
    CredentialsError,
    MisconfiguredError,
    NetworkError,
    NumberNotNotedError,
    ProjectNotConfiguredError,
    QuotaExceededError,
    ServerError,
    UnreachableError,
)
from ...runtime.backoff import pause_after
from .concurrency import AdaptiveLimit

#: An unreachable destination is tried at least this often, seconds, so that delivery soon resumes.
LONGEST_UNREACHABLE = 5.0


class Reason(enum.Enum):
    """Why a gate is closed; the values are for people."""

    QUOTA = "over quota"
    UNREACHABLE = "unreachable"
    MISCONFIGURED = "to be mended"  # prose: the name of a state


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a verdict on a gate.

    :ivar hold: the reason to close it; None to leave it as it is.
    :ivar free: True to open it, if the attempt began after the refusal that closed it.
    :ivar keep: the share of its limit that remains; None for an acceptance, which lets it grow; 1.0 for no effect.
    """

    hold: Reason | None = None
    free: bool = False
    keep: float | None = 1.0


_NOTHING = Effect()
_FREE = Effect(free=True)
_GROW = Effect(free=True, keep=None)


class Verdict(enum.Enum):
    """The finding of an attempt about the other side.

    The values are the effect on the destination's gate, the effect on the logstore's gate, and whether the destination
    was reached (None if unknown). A verdict without an effect on the logstore leaves its gate unchanged: another probe
    is sent.
    """

    ACCEPTED = _GROW, _GROW, True
    #: A response about the batch, which shows only that the server responds.
    ANSWERED = _FREE, _FREE, True
    OVER_QUOTA = _FREE, Effect(Reason.QUOTA, keep=0.5), True
    OVERLOADED = Effect(free=True, keep=0.75), _NOTHING, True
    NO_ANSWER = Effect(free=True, keep=0.5), _NOTHING, False
    UNREACHABLE = Effect(Reason.UNREACHABLE, keep=0.5), _NOTHING, False
    NOT_CONFIGURED = Effect(Reason.MISCONFIGURED), _NOTHING, True
    MISCONFIGURED = _FREE, Effect(Reason.MISCONFIGURED), True
    #: No attempt was made, for lack of credentials.
    NO_CREDENTIALS = _NOTHING, _NOTHING, False
    #: No attempt was made, for a reason on this side; for example, the batch was completed by another thread.
    NOT_TRIED = _NOTHING, _NOTHING, None

    def __init__(self, to_destination: Effect, to_logstore: Effect, reached: bool | None) -> None:
        self.to_destination, self.to_logstore, self.reached = to_destination, to_logstore, reached


def verdict_of(error: AttemptError, *, waits: bool) -> Verdict:
    """Return the verdict of a failed attempt.

    :param waits: True if batches wait for faults that an operator can fix.
    """
    for kind, verdict in _VERDICTS:
        if isinstance(error, kind):
            holds = waits or verdict not in (Verdict.NOT_CONFIGURED, Verdict.MISCONFIGURED)
            return verdict if holds else Verdict.ANSWERED
    return Verdict.ANSWERED


# The first match counts.
_VERDICTS: tuple[tuple[type[AttemptError], Verdict], ...] = (
    (QuotaExceededError, Verdict.OVER_QUOTA),
    (ServerError, Verdict.OVERLOADED),
    (UnreachableError, Verdict.UNREACHABLE),
    (NetworkError, Verdict.NO_ANSWER),
    (CredentialsError, Verdict.NO_CREDENTIALS),
    (NumberNotNotedError, Verdict.NOT_TRIED),
    (ProjectNotConfiguredError, Verdict.NOT_CONFIGURED),
    (MisconfiguredError, Verdict.MISCONFIGURED),
)


class GateState(enum.Enum):
    """The state of a gate."""

    OPEN = "open"
    HELD = "held"
    HALF_OPEN = "half open"


class Gate:
    """The gate of one destination or logstore. It has no lock and no clock: the owner has both.

    :param limit: the limit of concurrent attempts.
    :param base: how long the gate is closed at first, seconds; doubled by each further refusal.
    :param longest: the longest time that it is closed, seconds.
    :ivar in_flight: the number of admitted attempts in flight.
    :ivar until: the end of the time for which it is closed, monotonic seconds.
    :ivar since: when batches began to wait at it, monotonic seconds.
    :ivar reason: why it is closed; None if it is open.
    """

    __slots__ = ("_base", "_longest", "_probing", "_refused_at", "_streak", "in_flight", "limit", "reason", "since",
                 "state", "until")  # fmt: skip

    def __init__(self, limit: AdaptiveLimit, base: float, longest: float) -> None:
        self.limit = limit
        self._base, self._longest = base, longest
        self.in_flight = 0
        self.state = GateState.OPEN
        self.until = self.since = math.inf
        self.reason: Reason | None = None
        self._probing = False
        self._refused_at = -math.inf
        self._streak = 0

    @property
    def is_open(self) -> bool:
        """True if only the limit keeps batches waiting."""
        return self.state is GateState.OPEN

    def has_room(self) -> bool:
        """True if another attempt may be admitted now."""
        if self.state is GateState.OPEN:
            return self.in_flight < self.limit.value
        return self.state is GateState.HALF_OPEN and not self._probing

    def enter(self) -> bool:
        """Admit an attempt; return True if it is the probe, as :meth:`leave` needs to know."""
        self.in_flight += 1
        self.limit.used(self.in_flight)
        if self.state is GateState.OPEN or self.state is GateState.HELD or self._probing:
            return False
        self._probing = True
        return True

    def leave(self, effect: Effect, began: float, now: float, *, probe: bool, seconds: float | None = None) -> None:
        """Note the end of an attempt.

        :param began: when it was admitted, monotonic seconds.
        :param seconds: the duration of a successful request; None if it does not measure the server.
        """
        self.in_flight -= 1
        if probe:
            self._probing = False
        if effect.keep is None:
            self.limit.accepted(began, now, seconds)
        elif effect.keep < 1.0:
            self.limit.refused(began, now, effect.keep)
        if effect.hold is not None:
            self._hold(effect.hold, now)
        elif effect.free and self.state is not GateState.OPEN and began > self._refused_at:
            self.state, self._streak = GateState.OPEN, 0
            self.until = self.since = math.inf
            self.reason = None

    def _hold(self, reason: Reason, now: float) -> None:
        # Attempts that were in flight together are refused together, and count as one.
        if self.state is GateState.HELD and now < self.until:
            return
        if self.is_open:
            self.since = now
        self.state, self.reason, self._refused_at = GateState.HELD, reason, now
        self._streak += 1
        self.until = now + pause_after(self._streak, self._base, self._longest)

    def let_probe(self, now: float) -> None:
        """Make the gate half open, if its time is over."""
        if self.state is GateState.HELD and now >= self.until:
            self.state = GateState.HALF_OPEN
