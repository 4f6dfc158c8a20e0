"""The usual faults, ready to install."""

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
    """Refuse the request with this error, and store nothing.

    :param body: the bytes to send in place of LogHub's JSON; None for the JSON.
    """
    action = Refuse(status=status, code=code, message=message, headers=headers or {}, body=body)
    return lambda _request: action


def delay(seconds: float, *, stored: bool = False) -> Fault:
    """Delay the answer.

    :param stored: True to store the request's data before the delay.
    """
    return lambda _request: Delay(seconds, stored)


def clock_offset(seconds: float) -> Fault:
    """Set the server's clock ``seconds`` ahead (negative: behind)."""
    return lambda _request: ClockOffset(seconds)


def drop_answer(*, reset: bool = True) -> Fault:
    """Store the request's data, and close the connection without an answer."""
    return lambda _request: Cut("stored", reset)


def cut(when: str = "before_body", *, reset: bool = True) -> Fault:
    """Close the connection without an answer, at the stage ``when`` of :class:`Cut`."""
    action = Cut(when, reset)
    return lambda _request: action


def half_answer(part: float = 0.5) -> Fault:
    """Store the request's data, and close the connection after a part of the answer."""
    return lambda _request: HalfAnswer(part)


def raw_answer(data: bytes = b"\x00\x01 this is not HTTP\r\n\r\n", *, stored: bool = False) -> Fault:
    """Answer with bytes that are not HTTP."""
    return lambda _request: RawAnswer(data, stored)


def drip_answer(seconds_per_byte: float) -> Fault:
    """Store the request's data, and answer byte by byte."""
    return lambda _request: DripAnswer(seconds_per_byte)
