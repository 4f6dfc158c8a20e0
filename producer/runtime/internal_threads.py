"""Internal threads: tell the log records of producers' own work from those of users.

A handler that sends log records must not send those that its sending causes, because each would cause the next. These
are all records logged on a producer's threads: by this package, by libraries and by plug-ins, except by users'
callbacks. OpenTelemetry exports on its own threads, so the thread tells nothing about its records. Instead, all log
records and spans made on a producer's thread belong to one trace, which is not sampled.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .forks import Stage, call_in_child

#: The OpenTelemetry trace of all producers' work, and its span.
TRACE_ID = int.from_bytes(b"loghub-producer!", "big")
_SPAN_ID = int.from_bytes(b"producer", "big")

# Nesting depth of at_work() by thread; only the thread itself changes its entry.
_at_work: dict[int, int] = {}
# The threads among them that run a user's callback.
_in_callback: set[int] = set()


@contextmanager
def at_work() -> Iterator[None]:
    """Mark the block as work for a producer, on this thread."""
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
    """Attach the block to the trace of producers' work, if OpenTelemetry is imported."""
    trace = _imported("opentelemetry.trace", "use_span")
    if trace is None:
        yield
        return
    span = trace.NonRecordingSpan(trace.SpanContext(TRACE_ID, _SPAN_ID, is_remote=False))
    with _attached(trace.set_span_in_context(span)):
        yield


@contextmanager
def in_callback() -> Iterator[None]:
    """Mark the block as a user's callback, whose logs and traces are the user's."""
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
    """Return an imported module; None if it is not imported, or its import has not yet defined ``last``."""
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
    """True if the thread with this ``threading.get_ident()`` works for a producer."""
    return ident in _at_work


def logs_its_work(ident: int | None) -> bool:
    """True if log records of this thread are caused by a producer's work, and not by a callback."""
    return ident in _at_work and ident not in _in_callback


def _after_fork_in_child() -> None:
    """Forget all threads: the child's only one is not a producer's."""
    _at_work.clear()
    _in_callback.clear()


call_in_child(_after_fork_in_child, Stage.LOCKS)
