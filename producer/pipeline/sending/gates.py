"""Gates: everything that says "not now" to a destination.

Before every destination stands a gate, and before every logstore of it another; a batch that goes passes both. A gate
lets as many through at a time as its limit allows (see ``concurrency``), and closes when the other end says so::

    OPEN ──refusal──► HELD ──its time is over──► HALF_OPEN ──another answer──► OPEN
                       ▲                             │
                       └──────────refusal────────────┘   twice as long as before

A gate that is half open lets one attempt through, the probe, whose outcome decides for all that wait: a thousand
batches for a dead server make one request now and then, not each its own.

What closes which gate: a quota is counted by the service for each logstore, and holds back that one alone; so does what
an operator has to mend. An endpoint that takes no connection holds back its destination, which is what
:meth:`~producer.model.interfaces.Sink.destination` says: two endpoints of one project are two.
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
from .concurrency import AdaptiveLimit

#: A destination that cannot be reached is tried at least this often, seconds: when it is back, its records soon follow.
LONGEST_UNREACHABLE = 5.0


class Reason(enum.Enum):
    """Why a gate is closed; the values are for people."""

    QUOTA = "over quota"
    UNREACHABLE = "unreachable"
    MISCONFIGURED = "to be mended"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a verdict does to a gate.

    :ivar hold: closes it, for this reason.
    :ivar free: opens it, if the attempt began after the refusal that closed it.
    :ivar keep: the part of its limit that is left; None for an acceptance, which lets it grow, 1.0 for neither.
    """

    hold: Reason | None = None
    free: bool = False
    keep: float | None = 1.0


_NOTHING = Effect()
_FREE = Effect(free=True)
_GROW = Effect(free=True, keep=None)


class Verdict(enum.Enum):
    """What an attempt tells of the other end: what it does to the gate of the destination and to that of the logstore,
    and whether the destination was reached, None if that is not known. What tells nothing of the logstore leaves its
    gate as it is: another probe goes.
    """

    ACCEPTED = _GROW, _GROW, True
    #: An answer about the batch, which tells no more than that somebody answers.
    ANSWERED = _FREE, _FREE, True
    OVER_QUOTA = _FREE, Effect(Reason.QUOTA, keep=0.5), True
    OVERLOADED = Effect(free=True, keep=0.75), _NOTHING, True
    NO_ANSWER = Effect(free=True, keep=0.5), _NOTHING, False
    UNREACHABLE = Effect(Reason.UNREACHABLE, keep=0.5), _NOTHING, False
    NOT_CONFIGURED = Effect(Reason.MISCONFIGURED), _NOTHING, True
    MISCONFIGURED = _FREE, Effect(Reason.MISCONFIGURED), True
    #: It never came to an attempt, for want of credentials.
    NO_CREDENTIALS = _NOTHING, _NOTHING, False
    #: Likewise, for a reason of this side's, such as that the batch was settled by somebody else.
    NOT_TRIED = _NOTHING, _NOTHING, None

    def __init__(self, to_destination: Effect, to_logstore: Effect, reached: bool | None) -> None:
        self.to_destination, self.to_logstore, self.reached = to_destination, to_logstore, reached


def verdict_of(error: AttemptError, *, waits: bool) -> Verdict:
    """What a failed attempt tells.

    :param waits: whether batches wait for what an operator can mend.
    """
    for kind, verdict in _VERDICTS:
        if isinstance(error, kind):
            holds = waits or verdict not in (Verdict.NOT_CONFIGURED, Verdict.MISCONFIGURED)
            return verdict if holds else Verdict.ANSWERED
    return Verdict.ANSWERED


# The first that fits.
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
    """See the module."""

    OPEN = "open"
    HELD = "held"
    HALF_OPEN = "half open"


class Gate:
    """See the module. It has no lock and no clock: its owner brings both.

    :param limit: how many may be through it at a time.
    :param base: how long it is closed at first, seconds; twice as long after each refusal in a row.
    :param longest: how long at most, seconds.
    :ivar in_flight: attempts that are through it and under way.
    :ivar until: till when it is closed, monotonic seconds, where it is.
    :ivar since: since when batches wait before it, likewise.
    :ivar reason: why.
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
        """Whether nothing but its limit keeps batches back."""
        return self.state is GateState.OPEN

    def has_room(self) -> bool:
        """Whether another attempt may go through now."""
        if self.state is GateState.OPEN:
            return self.in_flight < self.limit.value
        return self.state is GateState.HALF_OPEN and not self._probing

    def enter(self) -> bool:
        """An attempt goes through; whether it is the probe, which :meth:`leave` is to be told."""
        self.in_flight += 1
        self.limit.used(self.in_flight)
        if self.state is GateState.OPEN or self.state is GateState.HELD or self._probing:
            return False
        self._probing = True
        return True

    def leave(self, effect: Effect, began: float, now: float, *, probe: bool, seconds: float | None = None) -> None:
        """An attempt is over.

        :param began: when it went through, monotonic seconds.
        :param seconds: how long an acceptance took; None if that is no measure.
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
        # Attempts that were under way together are refused together; they count as one.
        if self.state is GateState.HELD and now < self.until:
            return
        if self.is_open:
            self.since = now
        self.state, self.reason, self._refused_at = GateState.HELD, reason, now
        self.until = now + min(self._base * 2.0 ** min(self._streak, 64), self._longest)
        self._streak += 1

    def let_probe(self, now: float) -> None:
        """Half open it, if its time is over."""
        if self.state is GateState.HELD and now >= self.until:
            self.state = GateState.HALF_OPEN
