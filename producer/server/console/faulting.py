"""Faults, the last requests, and the clients that write, for the console."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from .. import faults
from ..errors import ApiError
from ..faults.actions import Fault
from ..messages import Answer, json_answer, parse_number
from ..operations.json_body import parse_json
from ..service import Service
from .plain import PlainRequest

_MAX_DELAY_SECONDS = 600.0


def _number(given: Mapping[str, Any], name: str, default: float, low: float, high: float) -> float:
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        given_text = str(value)[:64]
        raise ApiError("ParameterInvalid", f"{name} is {given_text!r}: it must be a number from {low:g} to {high:g}")
    return float(value)


def _place(given: Mapping[str, Any], name: str) -> str | None:
    return str(given[name]) if given.get(name) else None


def _answer(given: Mapping[str, Any]) -> Fault:
    status = int(_number(given, "status", 503, 400, 599))
    return faults.answer(status, str(given.get("code", "ServerBusy")), "a fault of the console")


#: Kinds of faults by name; each function reads its own settings.
_KINDS: dict[str, Callable[[Mapping[str, Any]], Fault]] = {
    "answer": _answer,
    "delay": lambda given: faults.delay(
        _number(given, "seconds", 1, 0, _MAX_DELAY_SECONDS), stored=bool(given.get("stored"))
    ),
    "drop_answer": lambda _given: faults.drop_answer(),
    "cut": lambda _given: faults.cut("in_body"),
    "half_answer": lambda _given: faults.half_answer(0.05),
    "raw_answer": lambda _given: faults.raw_answer(),
    "drip_answer": lambda given: faults.drip_answer(_number(given, "seconds", 0.05, 0, 10)),
    "clock_offset": lambda given: faults.clock_offset(_number(given, "seconds", 3600, -1e9, 1e9)),
}


#: The settings of a kind that distinguish its faults; they are part of the label.
_SHOWN = {
    "answer": ("status", "code"),
    "delay": ("seconds", "stored"),
    "drip_answer": ("seconds",),
    "clock_offset": ("seconds",),
}


async def list_faults(service: Service, _request: PlainRequest) -> Answer:
    """``GET /console/api/faults``: the installed faults, and the kinds to install."""
    installed = [
        {"id": one.number, "what": one.label, "for": one.wanted, "left": one.left, "fired": one.fired}
        for one in service.faults.installed()
    ]
    return json_answer({"faults": installed, "kinds": sorted(_KINDS)})


async def add_fault(service: Service, request: PlainRequest) -> Answer:
    """``POST /console/api/faults``: install a fault.

    The body is ``{"kind": …, "times": …, "operation": …, "project": …, "logstore": …, "probability": …}`` and the
    settings of the kind.
    """
    given = parse_json(request.body)
    kind = str(given.get("kind"))
    if kind not in _KINDS:
        raise ApiError("ParameterInvalid", f"kind is {kind[:64]!r}: use {', '.join(sorted(_KINDS))}")
    times = given.get("times")
    settings = {name: given[name] for name in _SHOWN.get(kind, ()) if name in given}
    installed = service.faults.add(
        _KINDS[kind](given),
        times=None if times in (None, "") else int(_number(given, "times", 1, 1, 1e9)),
        project=_place(given, "project"),
        logstore=_place(given, "logstore"),
        operation=_place(given, "operation"),
        probability=_number(given, "probability", 1, 0, 1),
        label=" ".join([kind, *(f"{name}={value}" for name, value in settings.items())])[:256],
    )
    return json_answer({"id": installed.number})


async def remove_fault(service: Service, request: PlainRequest) -> Answer:
    """``DELETE /console/api/faults/{id}``: remove a fault."""
    number = parse_number("id", request.query.get("id", ""))
    for one in service.faults.installed():
        if one.number == number:
            service.faults.remove(one)
            return json_answer({})
    raise ApiError("ParameterInvalid", f"no fault {number} is installed")


async def list_requests(service: Service, request: PlainRequest) -> Answer:
    """``GET /console/api/requests[?limit=…]``: the last requests, the newest first."""
    limit = parse_number("limit", request.query.get("limit", "100"), 1, 1000)
    age, now = time.monotonic(), service.now()
    return json_answer(
        {
            "requests": [
                {
                    "time": now - (age - one.when),
                    "operation": one.operation,
                    "method": one.method,
                    "path": one.path,
                    "project": one.project,
                    "logstore": one.logstore,
                    "status": one.status,
                    "error": one.error_code,
                    "bytes": one.body_size,
                    "raw_bytes": one.raw_size,
                    "logs": one.logs,
                    "milliseconds": round((one.finished - one.when) * 1000, 2),
                    "user_agent": one.headers.get("user-agent", ""),
                    "request_id": one.request_id,
                }
                for one in service.journal.records()[: -limit - 1 : -1]
            ]
        }
    )


async def list_producers(service: Service, _request: PlainRequest) -> Answer:
    """``GET /console/api/producers``: the clients that write, by user agent and address, since the server was made."""
    return json_answer(
        {
            "producers": [
                {
                    "user_agent": one.user_agent,
                    "address": one.address,
                    "requests": one.sums.requests,
                    "errors": one.errors,
                    "logs": one.sums.logs,
                    "bytes": one.sums.bytes,
                    "milliseconds": round(one.sums.seconds * 1000 / max(1, one.sums.requests), 2),
                    "endpoint": one.endpoint,
                    "seen": one.seen,
                }
                for one in service.activity.writers()
            ]
        }
    )
