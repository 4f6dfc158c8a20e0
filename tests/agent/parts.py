"""A source that puts lines fed by a test, and a sink that records its events, or fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from producer.agent import Context, EventBatch, Outlet, Position, RefusedError, SinkError, Stop, option
from producer.agent.config import registry


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Hub:
    """The state that a test shares with its components, by name.

    :ivar lines: lines to put.
    :ivar repeats: True if the source can read lines again, and gives positions.
    :ivar delivered: events that sinks received.
    :ivar failing: True to make sinks fail.
    :ivar refusing: True to make sinks refuse.
    :ivar why: the text of failures and refusals.
    :ivar absent: True to make sinks impossible to build.
    :ivar hanging: sinks wait for this event.
    :ivar writing: set once a sink has begun a write.
    :ivar made: the number of components built.
    :ivar closed: the number of sinks closed.
    """

    lines: SimpleQueue[bytes] = field(default_factory=SimpleQueue)
    repeats: bool = True
    delivered: list[bytes] = field(default_factory=list)
    failing: bool = False
    refusing: bool = False
    why: str = ""
    absent: bool = False
    made: int = 0
    closed: int = 0
    hanging: threading.Event = field(default_factory=_set)
    writing: bool = False
    number: int = 0


HUBS: dict[str, Hub] = {}


class FeedSource:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        hub: str = option(doc="whose lines")
        mark: int = option(0, doc="something to change")
        count: int = option(-1, doc="how many, then it is finished")

    def __init__(self, options: Options, context: Context) -> None:
        self._hub, self._left = HUBS[options.hub], options.count
        self._hub.made += 1

    def run(self, outlet: Outlet, stop: Stop) -> None:
        while self._left and not stop.is_set():
            try:
                line = self._hub.lines.get(timeout=0.01)
            except Empty:
                continue
            self._hub.number += 1
            position = Position("feed", self._hub.number) if self._hub.repeats else None
            assert outlet.put_until(EventBatch.of_lines(line, position=position), stop)
            self._left -= 1

    def lag(self) -> Any:
        from producer.agent.events.interfaces import Lag

        return Lag(events=self._hub.lines.qsize(), seconds=1.5)


class KeepSink:
    most_events, most_bytes = 100, 1 << 20

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        hub: str = option(doc="where to keep")
        mark: int = option(0, doc="something to change")
        key: str = option("", secret=True, doc="a secret")

    def __init__(self, options: Options, context: Context) -> None:
        self._hub = HUBS[options.hub]
        if self._hub.absent:
            raise FileNotFoundError("its directory is not there")
        self._hub.made += 1

    def write(self, batches: Sequence[EventBatch]) -> None:
        self._hub.writing = True
        assert self._hub.hanging.wait(60)
        if self._hub.failing:
            raise SinkError(self._hub.why or "the test's sink fails")
        if self._hub.refusing:
            raise RefusedError(self._hub.why or "the test's sink refuses", batches)
        for batch in batches:
            self._hub.delivered += batch.bodies()

    def close(self) -> None:
        self._hub.closed += 1


@dataclass
class _Point:
    kind: Any

    def load(self) -> Any:
        return self.kind


def plug_in(monkeypatch: pytest.MonkeyPatch, *hubs: str) -> tuple[Hub, ...]:
    """Register the types ``feed`` and ``keep`` as a package's entry points, and return a new hub for each name."""
    points = {"sources": {"feed": _Point(FeedSource)}, "sinks": {"keep": _Point(KeepSink)}}
    monkeypatch.setattr(registry, "_installed", cache(lambda: points))
    for name in hubs:
        monkeypatch.setitem(HUBS, name, Hub())
    return tuple(HUBS[name] for name in hubs)
