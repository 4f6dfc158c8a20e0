"""Faults between a client and LogHub, as functions that a test installs.

A fault is a plain function. It gets the request (:class:`~producer.server.messages.ApiRequest`) and returns an action,
or None. The functions below make the usual faults::

    server.faults.add(answer(503, "ServerBusy", "try later"), times=3)
    server.faults.add(lambda request: Delay(0.5) if request.logstore == "slow" else None)

Each request goes through all installed faults, in the order of installation. Their delays add up, and so do their clock
offsets. Of the other actions the first one is carried out.
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
