"""Faults: what can go wrong between a client and LogHub, as functions that a test installs.

A fault is a plain function: it is given the request (:class:`~producer.server.messages.ApiRequest`) and returns what
shall go wrong with it, or None. The functions below make the usual ones::

    server.faults.add(answer(503, "ServerBusy", "try later"), times=3)
    server.faults.add(lambda request: Delay(0.5) if request.logstore == "slow" else None)

Each request is shown to all installed faults in the order of installation. Delays add up, clock offsets add up, and of
what else they return the first is done.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .messages import ApiRequest


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait before the request is carried out; with ``stored``, after that and before the answer.

    :ivar seconds: how long. The body has been read before, so a client that gives up waiting may find its data stored
        all the same.
    :ivar stored: whether the request is carried out before the wait.
    """

    seconds: float
    stored: bool = False


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The server's clock, as this request meets it, is ``seconds`` ahead: in ``Date`` and in the check of the
    request's time.
    """

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Read the request, store nothing, and answer this.

    :ivar status: the HTTP status.
    :ivar code: ``errorCode``.
    :ivar message: ``errorMessage``.
    :ivar headers: further headers.
    :ivar body: these bytes instead of the JSON error.
    """

    status: int
    code: str
    message: str = "a fault of a test"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection before the answer.

    :ivar when: ``"before_body"`` (nothing of the body is read), ``"in_body"`` (half of it is), ``"after_body"`` (all
        of it, nothing is stored), ``"stored"`` (the request is carried out, its answer is dropped).
    :ivar reset: whether the client sees a reset (RST) rather than an end (FIN).
    """

    when: str
    reset: bool = True

    def __post_init__(self) -> None:
        if self.when not in ("before_body", "in_body", "after_body", "stored"):
            raise ValueError(f"when is {self.when!r}: use before_body, in_body, after_body or stored")


@dataclass(frozen=True, slots=True)
class HalfAnswer:
    """Carry the request out, send this part of the answer's bytes (status line, headers and body), and close.

    An answer to a write has no body, so half of it ends in the headers, which forgiving clients take for all of them;
    0.05 ends within the status line.

    :ivar part: from 0.0 to 1.0.
    """

    part: float = 0.5


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Send these bytes as they are and close.

    :ivar data: what the client gets.
    :ivar stored: whether the request is carried out before.
    """

    data: bytes
    stored: bool = False


@dataclass(frozen=True, slots=True)
class DripAnswer:
    """Carry the request out and send the answer byte by byte.

    :ivar seconds_per_byte: the wait between two bytes.
    """

    seconds_per_byte: float


Outcome = Refuse | Cut | HalfAnswer | RawAnswer | DripAnswer
Action = Delay | ClockOffset | Outcome
Fault = Callable[[ApiRequest], Action | None]


def answer(
    status: int,
    code: str,
    message: str = "a fault of a test",
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Fault:
    """Store nothing and answer this error; with ``body``, these bytes instead of the JSON that LogHub would send."""
    action = Refuse(status=status, code=code, message=message, headers=headers or {}, body=body)
    return lambda _request: action


def delay(seconds: float, *, stored: bool = False) -> Fault:
    """Answer late; with ``stored``, what was sent is in the store while the client waits."""
    return lambda _request: Delay(seconds, stored)


def clock_offset(seconds: float) -> Fault:
    """Let the server's clock be ``seconds`` ahead (negative: behind)."""
    return lambda _request: ClockOffset(seconds)


def drop_answer(*, reset: bool = True) -> Fault:
    """Store what was sent, and close the connection without an answer."""
    return lambda _request: Cut("stored", reset)


def cut(when: str = "before_body", *, reset: bool = True) -> Fault:
    """Close the connection without an answer; see :class:`Cut` for ``when``."""
    action = Cut(when, reset)
    return lambda _request: action


def half_answer(part: float = 0.5) -> Fault:
    """Store what was sent, and close the connection within the answer."""
    return lambda _request: HalfAnswer(part)


def raw_answer(data: bytes = b"\x00\x01 this is not HTTP\r\n\r\n", *, stored: bool = False) -> Fault:
    """Answer with bytes that are no answer."""
    return lambda _request: RawAnswer(data, stored)


def drip_answer(seconds_per_byte: float) -> Fault:
    """Store what was sent, and answer byte by byte."""
    return lambda _request: DripAnswer(seconds_per_byte)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What shall go wrong with one request.

    :ivar delay: seconds before the request is carried out.
    :ivar delay_stored: seconds after that.
    :ivar clock_offset: seconds that the server's clock is ahead.
    :ivar outcome: what is done instead of answering properly, or None.
    """

    delay: float = 0.0
    delay_stored: float = 0.0
    clock_offset: float = 0.0
    outcome: Outcome | None = None


def combine(actions: Iterable[Action]) -> Plan:
    """One plan from what the faults returned, in their order."""
    actions = list(actions)
    delays = [action for action in actions if isinstance(action, Delay)]
    outcomes = [action for action in actions if not isinstance(action, (Delay, ClockOffset))]
    return Plan(
        delay=sum(action.seconds for action in delays if not action.stored),
        delay_stored=sum(action.seconds for action in delays if action.stored),
        clock_offset=sum(action.seconds for action in actions if isinstance(action, ClockOffset)),
        outcome=outcomes[0] if outcomes else None,
    )


class InstalledFault:
    """A fault at work, as :meth:`Faults.add` returned it."""

    def __init__(self, fault: Fault, times: int | None, chance: Callable[[], bool], wanted: Mapping[str, str]) -> None:
        self._fault = fault
        self._left = times
        self._chance = chance
        self._wanted = wanted
        self._fired = 0

    @property
    def fired(self) -> int:
        """How many requests it has harmed so far."""
        return self._fired

    def action_for(self, request: ApiRequest) -> Action | None:
        """What it does to ``request``. Called by the server's thread only, so its counts need no lock."""
        matches = all(getattr(request, name) == value for name, value in self._wanted.items())
        if self._left == 0 or not matches or not self._chance():
            return None
        action = self._fault(request)
        if action is not None:
            self._fired += 1
            self._left = None if self._left is None else self._left - 1
        return action


class Faults:
    """The faults of one server. Its methods may be called from any thread."""

    def __init__(self) -> None:
        # Guards _installed: tests add and clear while the server's thread reads.
        self._lock = threading.Lock()
        self._installed: list[InstalledFault] = []

    def add(
        self,
        fault: Fault,
        *,
        times: int | None = None,
        project: str | None = None,
        logstore: str | None = None,
        operation: str | None = None,
        probability: float = 1.0,
        seed: int | None = None,
    ) -> InstalledFault:
        """Install ``fault``; it sees the requests that match all that is given here.

        :param times: how many requests it harms before it is spent; None for no end.
        :param project: requests to this project only.
        :param logstore: requests to this logstore only.
        :param operation: these requests only, such as ``"PutLogs"``.
        :param probability: the chance that it sees a request that matches, 0.0 to 1.0.
        :param seed: makes that chance repeatable.
        """
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability is {probability}: it must be from 0.0 to 1.0")
        wanted = {"project": project, "logstore": logstore, "operation": operation}
        chosen = {name: value for name, value in wanted.items() if value is not None}
        installed = InstalledFault(fault, times, _chance(probability, seed), chosen)
        with self._lock:
            self._installed.append(installed)
        return installed

    def remove(self, installed: InstalledFault) -> None:
        """Uninstall one; a fault that was cleared already is left in peace."""
        with self._lock:
            self._installed = [other for other in self._installed if other is not installed]

    def clear(self) -> None:
        """Uninstall all."""
        with self._lock:
            self._installed = []

    def plan(self, request: ApiRequest) -> Plan:
        """What shall go wrong with ``request``."""
        with self._lock:
            installed = list(self._installed)
        actions = [fault.action_for(request) for fault in installed]
        return combine(action for action in actions if action is not None)


def _chance(probability: float, seed: int | None) -> Callable[[], bool]:
    if probability >= 1.0:
        return lambda: True
    dice = random.Random(seed)  # noqa: S311 - chance for tests, not for secrets
    return lambda: dice.random() < probability
