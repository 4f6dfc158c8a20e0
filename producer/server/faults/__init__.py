"""Faults: what can go wrong between a client and LogHub, as functions that a test installs.

A fault is a plain function: it is given the request (:class:`~producer.server.messages.ApiRequest`) and returns what
shall go wrong with it, or None. The functions below make the usual ones::

    server.faults.add(answer(503, "ServerBusy", "try later"), times=3)
    server.faults.add(lambda request: Delay(0.5) if request.logstore == "slow" else None)

Each request is shown to all installed faults in the order of installation. Delays add up, clock offsets add up, and of
what else they return the first is done.
"""

from __future__ import annotations

from ..messages import ApiRequest
from .actions import (
    Action,
    ClockOffset,
    Cut,
    Delay,
    DripAnswer,
    Fault,
    HalfAnswer,
    Outcome,
    Plan,
    RawAnswer,
    Refuse,
    combine,
)
from .installed import Faults, InstalledFault
from .usual import answer, clock_offset, cut, delay, drip_answer, drop_answer, half_answer, raw_answer

__all__ = [
    "Action",
    "ApiRequest",
    "ClockOffset",
    "Cut",
    "Delay",
    "DripAnswer",
    "Fault",
    "Faults",
    "HalfAnswer",
    "InstalledFault",
    "Outcome",
    "Plan",
    "RawAnswer",
    "Refuse",
    "answer",
    "clock_offset",
    "combine",
    "cut",
    "delay",
    "drip_answer",
    "drop_answer",
    "half_answer",
    "raw_answer",
]
