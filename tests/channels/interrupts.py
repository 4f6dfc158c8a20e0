"""An interrupt at every place where CPython may run a signal handler: one run of the operation for each of them.

These places are the end of a call, the beginning of a function, and a jump backwards. A trace function sees each
instruction before it runs, and raises where the one before it was of these. Finalizers are left out: Python itself
swallows what is raised there.
"""

from __future__ import annotations

import dis
import gc
import itertools
import sys
from collections.abc import Callable, Collection
from functools import partial
from types import CodeType, FrameType
from typing import Any

_BEFORE = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD"}


class _Code:
    """The instructions of a function, and who handles what is raised by each."""

    def __init__(self, code: CodeType) -> None:
        bytecode = dis.Bytecode(code)
        self.before = {instruction.offset for instruction in bytecode if instruction.opname in _BEFORE}
        self.handled = [(entry.start, entry.end, entry.target) for entry in bytecode.exception_entries]  # type: ignore[attr-defined]

    def handler(self, offset: int) -> int | None:
        """Where an exception at ``offset`` goes."""
        return next((target for start, end, target in self.handled if start <= offset < end), None)

    def is_place(self, last: int, offset: int) -> bool:
        """Whether a handler may run between two instructions. Python counts what it raises to the first of them; a
        trace function raises at the second one, which is the same only where both have the same handler.
        """
        return last in self.before and self.handler(last) == self.handler(offset)


_known: dict[CodeType, _Code] = {}


def _in_finalizer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _interrupt() -> None:
    raise KeyboardInterrupt


class _Tracer:
    """Calls ``handler`` at the ``at``-th place inside the package; never, if that is 0."""

    def __init__(
        self, at: int, anywhere: Collection[str], handler: Callable[[], object], beside: Collection[str] = ()
    ) -> None:
        self.left = at
        self._anywhere, self._handler, self._beside = anywhere, handler, beside
        self.raised = False
        self._last: dict[FrameType, int] = {}

    def __call__(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """A frame begins, or goes on: whether its instructions are looked at is decided here, once for all of them."""
        code = frame.f_code
        ours = "/producer/" in code.co_filename or code.co_qualname in self._beside
        if not ours or _in_finalizer(frame):
            return None
        known = _known.get(code) or _known.setdefault(code, _Code(code))
        # First, since Python 3.13 shows instructions only to a function that is there already.
        frame.f_trace = self._everywhere if code.co_name in self._anywhere else partial(self._step, known)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return frame.f_trace

    def _everywhere(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            if frame in self._last:
                self._count()
            self._last[frame] = frame.f_lasti
        elif event == "return":
            self._last.pop(frame, None)
        return self._everywhere

    def _step(self, code: _Code, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            last, offset = self._last.get(frame), frame.f_lasti
            self._last[frame] = offset
            if last is not None and code.is_place(last, offset):
                self._count()
        elif event == "return":
            self._last.pop(frame, None)
        return None

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.raised = True
            self._handler()  # if it raises, Python ends the tracing

    def forget(self) -> None:
        """Let go of the frames."""
        self._last.clear()


#: Makes the operation to interrupt, and what must hold after it, given whether it was interrupted.
Scenario = Callable[[], Any]


def interrupted_everywhere(
    scenario: Scenario,
    at_least: int,
    anywhere: Collection[str] = (),
    handler: Callable[[], object] = _interrupt,
    beside: Collection[str] = (),
) -> int:
    """Run ``scenario`` with an interrupt at the first place, the second, … until the operation ends without one.

    :param at_least: how many places there must have been, so that a test cannot pass by finding none.
    :param anywhere: functions in which every instruction is a place, whatever CPython does.
    :param handler: what runs there.
    :param beside: qualified names of functions outside of the package that are looked at as well.
    :returns: how many there were.
    """
    gc.collect()
    places = _interrupted_everywhere(scenario, anywhere, handler, beside)
    assert places > at_least, f"only {places} places"
    return places


def _interrupted_everywhere(
    scenario: Scenario, anywhere: Collection[str], handler: Callable[[], object], beside: Collection[str]
) -> int:
    if sys.version_info[:2] == (3, 12):  # which shows the instructions of a function from its second call on
        _run(scenario, _Tracer(0, anywhere, handler, beside))
    for at in itertools.count(1):
        tracer = _Tracer(at, anywhere, handler, beside)
        _run(scenario, tracer)
        if not tracer.raised:
            return at
    raise AssertionError


def _run(scenario: Scenario, tracer: _Tracer) -> None:
    operation, check = scenario()
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        operation()
    except KeyboardInterrupt:
        assert tracer.raised
    finally:
        sys.settrace(before)
    tracer.forget()
    del operation
    check(tracer.raised)
