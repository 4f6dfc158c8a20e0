"""Pass sample input through one source of a configuration, without a source, channels or sinks that run.

Each event passes the interceptors and the selector alone, as a batch of one. So its path is known: its form after each
interceptor, or the interceptor that dropped it. Nothing listens. Interceptors get an empty state directory, which is
removed afterwards.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...model.errors import ProducerError
from ...runtime.clock import Clock, SystemClock
from ...text.printable import hide
from ..config.cases import Case, Expected
from ..config.options import words_of
from ..events.batch import EventBatch
from ..events.interfaces import Context
from ..flow.channel import BatchChannel
from ..flow.channels import MemoryChannelBuilder
from ..sinks.json_lines import json_line
from .blueprint import Blueprint, Part

_SELECTOR = "selector"


class TrialError(ProducerError):
    """Raised when an interceptor or selector cannot start, or a source cannot read the input."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one stage for one event of the source.

    :ivar name: the interceptor's name, or the source's for the first step.
    :ivar batch: the remaining events; usually one, or none if it was dropped.
    """

    name: str
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one event's path.

    :ivar event: a batch of one event; the event before it was dropped, if it was.
    :ivar channels: the channels that get it; empty if it was dropped.
    :ivar dropped_by: the stage that dropped it; empty otherwise.
    :ivar failure: the error of the stage that failed for it; empty for none.
    """

    event: EventBatch
    channels: tuple[str, ...] = ()
    dropped_by: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """The path of one event of the source.

    :ivar steps: the source, and each interceptor that ran.
    :ivar outcomes: one outcome, or several if an interceptor made several events.
    """

    steps: tuple[Step, ...]
    outcomes: tuple[Outcome, ...]


class Trial:
    """The interceptors and the selector of one source, as a context manager.

    :param source: the source's name; empty for the only one.
    :raises TrialError: by ``with``, if an interceptor or the selector cannot be built.
    :ivar passed_over: the names of interceptors that do not run, since they connect to a service.
    :ivar decodes: True if the source decodes samples itself, False if each line is taken as an event.
    """

    def __init__(self, blueprint: Blueprint, source: str = "", clock: Clock | None = None) -> None:
        self._blueprint, self._clock = blueprint, clock or SystemClock()
        self._source = source or next(iter(blueprint.sources))
        self._part = blueprint.sources[self._source]
        self._exit = ExitStack()
        self.passed_over = [each.name for each in self._part.interceptors if getattr(each.kind, "connects", False)]
        self.decodes = hasattr(self._part.source.kind, "decode_sample")

    def __enter__(self) -> Self:
        with self._exit as undo:
            state = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="producer-agent-test-")))
            context = partial(Context, self._blueprint.config.name, clock=self._clock)
            self._interceptors = list[tuple[str, Any]]()
            for each in (each for each in self._part.interceptors if each.name not in self.passed_over):
                self._interceptors.append((each.name, self._made(each, context(each.name, state / each.name))))
                undo.callback(getattr(self._interceptors[-1][1], "close", bool))
            channels = {name: self._channel(context(name, state / name), undo) for name in self._part.channels}
            self._selector = self._made(self._part.selector, context(self._source, state / _SELECTOR), channels)
            self._exit = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def _made(self, part: Part, *arguments: object) -> Any:
        try:
            return part.make(*arguments)
        except Exception as error:
            raise TrialError(f"{self._source}: {part.name} cannot start: {self._words(error)}") from error

    @staticmethod
    def _channel(context: Context, undo: ExitStack) -> BatchChannel:
        """Return an empty channel in memory: a selector may ask for the room in it."""
        channel = MemoryChannelBuilder(MemoryChannelBuilder.Options(), context).open()
        undo.callback(channel.close)
        return channel

    def decoded(self, data: bytes, headers: Mapping[str, str] = {}) -> EventBatch:
        """Return the events that the source makes of the input.

        :param headers: further headers of all events.
        :raises TrialError: the source cannot read the input.
        """
        part = self._part.source
        decode: Callable[[Any, bytes, Clock], EventBatch] | None = getattr(part.kind, "decode_sample", None)
        try:
            batch = EventBatch.of_lines(data) if decode is None else decode(part.options, data, self._clock)
        except Exception as error:
            raise TrialError(f"source {self._source} cannot read the input: {self._words(error)}") from error
        return batch.at(None).with_shared(headers)

    def passages(self, batch: EventBatch) -> Iterator[Passage]:
        """Yield the path of each event."""
        for number in range(batch.count):
            yield self._passage(_single(batch, number))

    def _passage(self, event: EventBatch) -> Passage:
        steps, committed = [Step(self._source, event)], list[Callable[[], None]]()
        for name, interceptor in self._interceptors:
            before = steps[-1].batch
            try:
                after = interceptor.intercept(before)
            except Exception as error:  # noqa: BLE001  # a plugin or a user's function may raise anything
                return Passage(tuple(steps), (Outcome(before, failure=f"{name} fails for it: {self._words(error)}"),))
            steps.append(Step(name, after))
            if not after.count:
                return Passage(tuple(steps), (Outcome(before, dropped_by=name),))
            if hasattr(interceptor, "committed"):
                committed.append(partial(interceptor.committed, after))
        last = steps[-1].batch
        outcomes = tuple(map(self._routed, (_single(last, number) for number in range(last.count))))
        for each in committed:
            each()
        return Passage(tuple(steps), outcomes)

    def _routed(self, event: EventBatch) -> Outcome:
        routes = self._selector.select(event)
        parts = {**routes.required, **routes.optional}
        channels = tuple(name for name in self._part.channels if name in parts and parts[name].count)
        return Outcome(event, channels, "" if channels else f"the {_SELECTOR}")

    def rendered(self, event: EventBatch, channel: str) -> Iterator[tuple[str, str]]:
        """Yield the sinks of a channel, each with the text that its destination gets.

        Without ``render_sample`` in the sink, such as for binary protocols, it is the event as JSON.
        """
        for group in self._blueprint.sinks.values():
            for part in group.sinks if group.channel == channel else ():
                yield part.name, self._rendered(part, event)

    def _rendered(self, part: Part, event: EventBatch) -> str:
        try:
            if (render := getattr(part.kind, "render_sample", None)) is None:
                return "".join([json_line(headers, body).decode() for headers, body in event.events()])
            return str(render(part.options, event, self._clock))
        except Exception as error:  # noqa: BLE001  # a plugin may raise anything
            return f"cannot be sent: {self._words(error)}"

    def _words(self, error: Exception) -> str:
        return hide(f"{type(error).__name__}: {words_of(error)}", self._blueprint.config.hidden)


def failures_of(case: Case, blueprint: Blueprint, clock: Clock | None = None) -> list[str]:
    """Run a test, and return a line for each difference; none if it succeeds."""
    try:
        with Trial(blueprint, case.source, clock) as trial:
            batch = trial.decoded(case.input, case.headers)
            outcomes = [outcome for passage in trial.passages(batch) for outcome in passage.outcomes]
    except TrialError as error:
        return [str(error)]
    found = []
    for number, (outcome, expected) in enumerate(zip(outcomes, case.expect, strict=False), 1):
        wrong = list(_differences(outcome, expected))
        if wrong:
            found += [f"event {number}: {_short(outcome.event)}", *(f"  {each}" for each in wrong)]
    if len(outcomes) != len(case.expect):
        found.append(f"expected {len(case.expect)} outcomes, got {len(outcomes)}")
        found += [f"  not expected: {_short(each.event)}" for each in outcomes[len(case.expect) :]]
    return found


def _differences(outcome: Outcome, expected: Expected) -> Iterator[str]:
    if outcome.failure:
        yield outcome.failure
    elif outcome.dropped_by or expected.dropped:
        if not expected.dropped:
            yield f"expected it in a channel, but {outcome.dropped_by} drops it"
        elif not outcome.dropped_by:
            yield f"expected it to be dropped, but it gets to {', '.join(outcome.channels)}"
    else:
        yield from _differences_of_event(outcome, expected)


def _differences_of_event(outcome: Outcome, expected: Expected) -> Iterator[str]:
    ((headers, body),) = outcome.event.events()
    text = text_of(body)
    if expected.body is not None and text != expected.body:
        yield from ("body", f"  expected {expected.body!r}", f"  got      {text!r}")
    for name, value in expected.headers.items():
        if headers.get(name) != value:
            got = repr(headers[name]) if name in headers else f"none; there are {', '.join(headers) or 'no headers'}"
            yield from (f"header {name}", f"  expected {value!r}", f"  got      {got}")
    for name in expected.absent:
        if name in headers:
            yield f"header {name}: expected none, got {headers[name]!r}"
    if expected.channels is not None and {*expected.channels} != {*outcome.channels}:
        yield f"channels: expected {', '.join(expected.channels)}, got {', '.join(outcome.channels)}"


def text_of(body: bytes) -> str:
    r"""Return a body as text; bytes that are not UTF-8 become ``\xNN``."""
    return body.decode(errors="backslashreplace")


def _short(event: EventBatch) -> str:
    text = text_of(event.bodies()[0])
    return repr(text if len(text) <= 100 else f"{text[:100]}…")


def _single(batch: EventBatch, number: int) -> EventBatch:
    return batch.select([each == number for each in range(batch.count)])
