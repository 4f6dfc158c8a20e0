"""Actions of faults, one dataclass for each kind, and the plan that combines several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..messages import ApiRequest


@dataclass(frozen=True, slots=True)
class Delay:
    """Wait before the request is carried out, or after it and before the answer.

    The body is read before the wait, so a client that times out may still have its data stored.

    :ivar seconds: length of the wait.
    :ivar stored: True to carry the request out before the wait.
    """

    seconds: float
    stored: bool = False


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Offset of the server's clock for this request, in the ``Date`` header and in the check of the request's time.

    :ivar seconds: seconds that the clock is ahead.
    """

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Read the request, store nothing, and answer with an error.

    :ivar status: the HTTP status.
    :ivar code: ``errorCode``.
    :ivar message: ``errorMessage``.
    :ivar headers: additional headers.
    :ivar body: bytes to send in place of the JSON error; None for the JSON.
    """

    status: int
    code: str
    message: str = "a fault of a test"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection before the answer.

    :ivar when: the stage to close at: ``"before_body"`` (none of the body is read), ``"in_body"`` (half of it is read),
        ``"after_body"`` (all of it is read, nothing is stored), or ``"stored"`` (the request is carried out, its answer
        is dropped).
    :ivar reset: True to close with a reset (RST), False with an end (FIN).
    """

    when: str
    reset: bool = True

    def __post_init__(self) -> None:
        if self.when not in ("before_body", "in_body", "after_body", "stored"):
            raise ValueError(f"when is {self.when!r}: use before_body, in_body, after_body or stored")


@dataclass(frozen=True, slots=True)
class HalfAnswer:
    """Carry the request out, send only this part of the answer's bytes, and close.

    The bytes are status line, headers and body. An answer to a write has no body, so half of it ends in the headers,
    and forgiving clients take these for complete. A part of 0.05 ends in the status line.

    :ivar part: from 0.0 to 1.0.
    """

    part: float = 0.5


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """Send raw bytes and close.

    :ivar data: the bytes to send.
    :ivar stored: True to carry the request out before.
    """

    data: bytes
    stored: bool = False


@dataclass(frozen=True, slots=True)
class DripAnswer:
    """Carry the request out and send the answer byte by byte.

    :ivar seconds_per_byte: seconds between two bytes.
    """

    seconds_per_byte: float


Outcome = Refuse | Cut | HalfAnswer | RawAnswer | DripAnswer
Action = Delay | ClockOffset | Outcome
Fault = Callable[[ApiRequest], Action | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The combined actions for one request.

    :ivar delay: seconds to wait before the request is carried out.
    :ivar delay_stored: seconds to wait after it.
    :ivar clock_offset: seconds that the server's clock is ahead.
    :ivar outcome: replacement of the proper answer, or None.
    """

    delay: float = 0.0
    delay_stored: float = 0.0
    clock_offset: float = 0.0
    outcome: Outcome | None = None


def combine(actions: Iterable[Action]) -> Plan:
    """Combine the faults' actions: delays and clock offsets add up, the first outcome wins."""
    actions = list(actions)
    delays = [action for action in actions if isinstance(action, Delay)]
    outcomes = [action for action in actions if not isinstance(action, (Delay, ClockOffset))]
    return Plan(
        delay=sum(action.seconds for action in delays if not action.stored),
        delay_stored=sum(action.seconds for action in delays if action.stored),
        clock_offset=sum(action.seconds for action in actions if isinstance(action, ClockOffset)),
        outcome=outcomes[0] if outcomes else None,
    )
