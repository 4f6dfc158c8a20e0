"""What a fault can want: one dataclass for each kind of harm, and how several become one plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..messages import ApiRequest


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
