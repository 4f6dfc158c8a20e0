"""Which threads work for producers at this moment, so that what they log can be told from what users log.

A handler that sends log records must not send those that its sending causes: each would cause the next. On such a
thread that is all that is logged, by this package, by the libraries that it calls, and by plug-ins, but for what users'
callbacks log. OpenTelemetry exports on threads of its own: there the trace tells, since log records and spans made on a
producer's thread belong to one trace, which is not sampled.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .forks import Stage, call_in_child

#: The trace of OpenTelemetry that all work for producers belongs to, and its span.
TRACE_ID = int.from_bytes(b"loghub-producer!", "big")
_SPAN_ID = int.from_bytes(b"producer", "big")

# Of threads, and how many times each began; only its own thread changes an entry.
_at_work: dict[int, int] = {}
# Those of them that run a user's callback.
_in_callback: set[int] = set()


@contextmanager
def at_work() -> Iterator[None]:
    """What the caller's thread does inside, it does for a producer."""
    ident = threading.get_ident()
    before = _at_work.get(ident, 0)
    _at_work[ident] = before + 1
    try:
        with untraced():
            yield
    finally:
        if before:
            _at_work[ident] = before
        else:
            _at_work.pop(ident, None)


@contextmanager
def untraced() -> Iterator[None]:
    """Have what is made inside belong to the trace of producers' work, if OpenTelemetry is imported by now."""
    trace = _imported("opentelemetry.trace", "use_span")
    if trace is None:
        yield
        return
    span = trace.NonRecordingSpan(trace.SpanContext(TRACE_ID, _SPAN_ID, is_remote=False))
    with _attached(trace.set_span_in_context(span)):
        yield


@contextmanager
def in_callback() -> Iterator[None]:
    """What the caller's thread does inside is a user's callback: what that logs and traces is the user's."""
    ident = threading.get_ident()
    _in_callback.add(ident)
    trace = _imported("opentelemetry.trace", "use_span")
    try:
        if trace is None:
            yield
        else:
            with _attached(trace.set_span_in_context(trace.INVALID_SPAN)):
                yield
    finally:
        _in_callback.discard(ident)


def _imported(name: str, last: str) -> Any:
    """A module that the application has imported, to its end, which defines ``last``; else None."""
    module = sys.modules.get(name)
    return module if hasattr(module, last) else None


@contextmanager
def _attached(values: Any) -> Iterator[None]:
    context = sys.modules["opentelemetry.context"]
    token = context.attach(values)
    try:
        yield
    finally:
        context.detach(token)


def is_at_work(ident: int | None) -> bool:
    """Whether the thread with that ``threading.get_ident()`` works for a producer."""
    return ident in _at_work


def logs_its_work(ident: int | None) -> bool:
    """Whether what that thread logs now is caused by a producer's work: not what a callback logs."""
    return ident in _at_work and ident not in _in_callback


def _after_fork_in_child() -> None:
    """The child has one thread, which is no producer's."""
    _at_work.clear()
    _in_callback.clear()


call_in_child(_after_fork_in_child, Stage.LOCKS)
