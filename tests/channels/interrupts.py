"""An interrupt at every place where CPython may run a signal handler: one run of the operation for each of them.

These places are the end of a call, the beginning of a function, and a jump backwards. A trace function sees each
instruction before it runs, and raises where the one before it was of these.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_BEFORE = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD"}
_names: dict[CodeType, dict[int, str]] = {}


def _name(code: CodeType, offset: int) -> str:
    if code not in _names:
        _names[code] = {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}
    return _names[code].get(offset, "")


class _Tracer:
    """Raises KeyboardInterrupt at the ``at``-th place inside the package."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.raised = False
        self._last: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if "/producer/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if not self.raised and last is not None and _name(frame.f_code, last) in _BEFORE:
                self.left -= 1
                if self.left == 0:
                    self.raised = True
                    raise KeyboardInterrupt
        elif event == "return":
            self._last.pop(frame, None)
        return self


#: Makes the operation to interrupt, and what must hold after it, given whether it was interrupted.
Scenario = Callable[[], Any]


def interrupted_everywhere(scenario: Scenario, at_least: int) -> int:
    """Run ``scenario`` with an interrupt at the first place, the second, … until the operation ends without one.

    :param at_least: how many places there must have been, so that a test cannot pass by finding none.
    :returns: how many there were.
    """
    at = 0
    while True:
        at += 1
        operation, check = scenario()
        tracer, before = _Tracer(at), sys.gettrace()
        sys.settrace(tracer)
        try:
            operation()
        except KeyboardInterrupt:
            assert tracer.raised
        finally:
            sys.settrace(before)
        tracer._last.clear()
        del operation
        if tracer.raised and at % 10 == 0:
            gc.collect()
        check(tracer.raised)
        if not tracer.raised:
            assert at > at_least, f"only {at} places"
            return at
