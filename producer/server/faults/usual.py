"""The usual faults, ready to be installed."""

from __future__ import annotations

from collections.abc import Mapping

from .actions import ClockOffset, Cut, Delay, DripAnswer, Fault, HalfAnswer, RawAnswer, Refuse


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
