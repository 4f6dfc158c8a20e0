"""Conformance tests for components of an agent, to inherit from; for plugins, with pytest.

Each class is a set of tests. A test module makes a subclass that builds the component, and pytest runs them::

    from producer.agent.testing import InterceptorConformance

    class TestShout(InterceptorConformance):
        def make(self):
            return Shout(Shout.Options(), self.context)

The tests use real threads, and real channels in a temporary directory; they need pytest's ``tmp_path``.

The file is long because plugin authors import, and read, a single module.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..model.errors import ChannelFullError
from ..runtime.clock import Stop, SystemClock
from ..runtime.locks import Lock
from .config.options import AgentConfigError, Problem, read_options
from .events.batch import EventBatch, Position
from .events.interfaces import Context, Interceptor, RefusedError, Routes, Selector, Sink, SinkError, Source
from .flow.channel import BatchChannel
from .flow.channels import MemoryChannelBuilder
from .flow.health import Health
from .flow.sink_runner import SinkRunner

__all__ = [
    "InterceptorConformance",
    "RecordingOutlet",
    "SelectorConformance",
    "SinkConformance",
    "SourceConformance",
]

#: The longest wait for any result, and for a component's end, in seconds.
PATIENCE = 20.0
#: Numbers of refused puts: all of them; and so many that a premature acknowledgement would have arrived.
_ALL, _TRIES = 1 << 30, 3


class RecordingOutlet:
    """An :class:`~.interfaces.Outlet` that records the batches put into it.

    :ivar committed: the committed batches, in order.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards all but _open
        self.committed: list[EventBatch] = []
        self.refused = 0
        self._refusals = 0
        self._failures = 0
        self._open = threading.Event()
        self._open.set()
        self._ends: dict[str, int] = {}

    @property
    def bodies(self) -> list[bytes]:
        """The committed bodies, in order."""
        with self._lock:
            return [body for batch in self.committed for body in batch.bodies()]

    def refuse(self, times: int) -> None:
        """Make the next puts raise :class:`ChannelFullError`."""
        with self._lock:
            self._refusals = times

    def fail(self, times: int) -> None:
        """Make the next puts raise an unexpected error, as a faulty interceptor does."""
        with self._lock:
            self._failures = times

    def hold(self) -> None:
        """Make puts wait, as a full channel does."""
        self._open.clear()

    def let_go(self) -> None:
        """End the wait of :meth:`hold`."""
        self._open.set()

    def put(self, batch: EventBatch, timeout: float | None = None, *, refuse: bool = True) -> None:
        if not self._open.wait(PATIENCE if timeout is None else timeout):
            raise _full()
        with self._lock:
            if self._failures:
                self._failures -= 1
                raise RuntimeError("an unexpected error")
            if self._refusals:
                self._refusals -= 1
                self.refused += 1
                raise _full()
            self.committed.append(batch)
            if batch.position is not None:
                self._ends[batch.position.name] = batch.position.end

    def put_until(self, batch: EventBatch, stop: Stop) -> bool:
        while True:
            try:
                self.put(batch, 0.05)
                return True
            except ChannelFullError:
                if stop.wait(0.01):
                    return False

    def ends(self, name: str) -> Sequence[int]:
        with self._lock:
            return [self._ends.get(name, 0)]

    def is_safe(self, name: str) -> bool:
        return True

    def safe_end(self, name: str) -> int:
        return self.ends(name)[0]

    def names(self) -> set[str]:
        with self._lock:
            return set(self._ends)

    def pass_over(self, position: Position) -> None:
        with self._lock:
            self._ends[position.name] = max(position.end, self._ends.get(position.name, 0))

    def forget(self, name: str) -> None:
        with self._lock:
            self._ends.pop(name, None)


def _channel(context: Context) -> BatchChannel:
    return MemoryChannelBuilder(MemoryChannelBuilder.Options(), context).open()


#: Enough deliveries for a few hundred batches.
_DELIVERIES = 20
#: Header values that senders may choose: some are not valid text, names, times, numbers or lines.
_ODD_VALUES = (
    *("", ".", "../../x", "caf\udce9", "\ud800", "a\0b", "a\r\nb \x1b[31m", "n" * 300, "\N{SNOWMAN}" * 300, "%{x}%s{}"),
    *("9" * 13, "9" * 30, "9" * 5000, "253402300799999", "-1", "1e400", "\N{ARABIC-INDIC DIGIT ONE}", "{" * 3000),
)
#: Headers that have a meaning for some sink, interceptor or selector.
_KNOWN_HEADERS = (
    *("host", "timestamp", "topic", "key", "partition", "tag", "priority", "severity_number", "trace_id"),
    *("resource.x", "scope", "x"),
)


def odd_events() -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield events that must not stop any component: odd values of known headers, odd names, and odd bodies."""
    for value in _ODD_VALUES:
        yield dict.fromkeys(_KNOWN_HEADERS, value), b"odd"
        yield {value: value}, value.encode(errors="surrogatepass")
    yield {"n" * 65_000: "x"}, b"\0"
    yield from (({}, body) for body in (b"", b"\xff\xfe", b"\r", b"[" * 5000, b'{"a":' * 5000, b"=" * 5000, b'"' * 999))


def _full() -> ChannelFullError:
    return ChannelFullError(
        "recording",
        size=1,
        capacity=1,
        used_bytes=0,
        byte_capacity=None,
        wanted=1,
        wanted_bytes=0,
        last_take_age=None,
        waited=0.0,
    )


class _Conformance:
    """Common parts of the conformance tests.

    :ivar context: the context for the component.
    """

    context: Context
    #: Options that must be refused before anything starts, each a set as in a configuration.
    wrong_options: Sequence[Mapping[str, Any]] = ()

    def setup_method(self) -> None:
        """Reset the outlet; called by pytest."""
        self._outlet = RecordingOutlet()

    def _prepare(self, tmp_path: Path) -> None:
        self.context = Context("conformance", type(self).__name__, tmp_path / "state", clock=SystemClock())

    def _refuses(self, component: object) -> None:
        """Check that wrong options, and an unknown one, are refused by a problem that names one of them."""
        options: type | None = getattr(type(component), "Options", None)
        if options is None:
            return
        for wrong in ({"no_such_option": 1}, *self.wrong_options):
            found = _problems(options, wrong)
            named = {problem.key.partition(".")[0] for problem in found}
            assert named & wrong.keys(), f"{wrong} was not reported; reported were {sorted(named)}"


class SourceConformance(_Conformance, ABC):
    """A source acknowledges events only once they are committed, loses none, and stops when asked."""

    #: True if the source continues after the committed events when it is restarted.
    resumes = True

    @abstractmethod
    def make(self) -> Source:
        """Build a source that reads the events of :meth:`feed`."""

    @abstractmethod
    def feed(self, number: int) -> bytes:
        """Give the source an event, and return its body. The numbers rise from 0."""

    def garble(self) -> bool:
        """Give the source input that it cannot read. Return False if there is no such input."""
        return False

    def acknowledged(self) -> int | None:
        """Return the number of events acknowledged to the sender; None if the source acknowledges nothing."""
        return None

    def test_wrong_options_are_refused(self, tmp_path: Path) -> None:
        """Unknown options and those of :attr:`wrong_options` are refused."""
        self._prepare(tmp_path)
        self._refuses(self.make())

    def test_every_event_is_committed(self, tmp_path: Path) -> None:
        """Every event is committed, in order, with its bytes."""
        self._prepare(tmp_path)
        with self._running():
            wanted = [self.feed(number) for number in range(10)]
            self._await(wanted)

    def test_a_full_channel_loses_no_event(self, tmp_path: Path) -> None:
        """Events survive a channel that is full for a while."""
        self._prepare(tmp_path)
        self._outlet.refuse(3)
        with self._running():
            wanted = [self.feed(number) for number in range(5)]
            self._await(wanted)

    def test_nothing_is_acknowledged_before_it_is_committed(self, tmp_path: Path) -> None:
        """The sender gets no acknowledgement before the channel has committed its event."""
        self._prepare(tmp_path)
        if self.acknowledged() is None:
            return
        self._outlet.refuse(_ALL)
        with self._running():
            feeder = threading.Thread(target=self.feed, args=(0,), daemon=True)
            feeder.start()
            _eventually(lambda: self._outlet.refused >= _TRIES, f"{_TRIES} attempts to commit the event")
            assert self.acknowledged() == 0, "acknowledged before the commit"
            self._outlet.refuse(0)
            feeder.join(PATIENCE)
            _eventually(lambda: self.acknowledged() == 1, "the acknowledgement")

    def test_the_source_stops_on_request(self, tmp_path: Path) -> None:
        """The source stops within a few seconds, whether idle or blocked by a channel."""
        self._prepare(tmp_path)
        for held in (False, True):
            if held:
                self._outlet.hold()
            with self._running():
                if held:
                    threading.Thread(target=self._feed_or_fail, daemon=True).start()

    def _feed_or_fail(self) -> None:
        """Feed one event; the source may end meanwhile, which fails the sender."""
        with suppress(Exception):
            self.feed(0)

    def test_a_restarted_source_continues(self, tmp_path: Path) -> None:
        """A restart continues with new events, and repeats none if the source can resume."""
        self._prepare(tmp_path)
        with self._running():
            wanted = [self.feed(number) for number in range(3)]
            self._await(wanted)
        with self._running():
            wanted += [self.feed(number) for number in range(3, 6)]
            if self.resumes:
                self._await(wanted)
            else:
                _eventually(lambda: set(self._outlet.bodies) >= set(wanted), "the new events")

    def test_a_failed_put_loses_no_event(self, tmp_path: Path) -> None:
        """After an unexpected error of a put, events that can be read again, or were not acknowledged, are still
        committed.
        """
        self._prepare(tmp_path)
        self._outlet.fail(1)
        with self._running(again=True):
            first, second = self.feed(0), self.feed(1)
            kept = self.resumes or self.acknowledged() is not None
            wanted = {first, second} if kept else {second}
            _eventually(lambda: set(self._outlet.bodies) >= wanted, "the events")

    def test_unreadable_input_does_not_block_later_events(self, tmp_path: Path) -> None:
        """Unreadable input does not block the events after it."""
        self._prepare(tmp_path)
        with self._running(again=True):
            if self.garble():
                wanted = self.feed(0)
                _eventually(lambda: wanted in self._outlet.bodies, "the event after the unreadable input")

    def _await(self, wanted: Sequence[bytes]) -> None:
        _eventually(lambda: len(self._outlet.bodies) >= len(wanted), f"{len(wanted)} events")
        assert self._outlet.bodies == list(wanted)

    @contextmanager
    def _running(self, *, again: bool = False) -> Iterator[None]:
        """Run the source on a thread of its own.

        :param again: True to run a failed source again, on a new object, as an agent does.
        """
        stop, failures = Stop(), list[BaseException]()

        def run() -> None:
            while not stop.is_set():
                try:
                    self.make().run(self._outlet, stop)
                    return
                except Exception as error:
                    if not again:
                        failures.append(error)
                        raise
                    stop.wait(0.01)

        thread = threading.Thread(target=run, name="conformance-source", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(PATIENCE)
        assert not thread.is_alive(), f"the source has not stopped within {PATIENCE:.0f} s"
        assert not failures, f"the source failed: {failures[0]!r}"


class SinkConformance(_Conformance, ABC):
    """A sink returns once its destination has acknowledged, and raises otherwise."""

    @abstractmethod
    def make(self) -> Sink:
        """Build a sink to the destination."""

    @abstractmethod
    def delivered(self) -> list[bytes]:
        """Return the bodies that the destination has acknowledged, in its order."""

    def break_destination(self) -> Callable[[], None] | None:
        """Make the destination fail. Return a function that repairs it; None if it cannot fail."""
        return None

    def test_wrong_options_are_refused(self, tmp_path: Path) -> None:
        """Unknown options and those of :attr:`wrong_options` are refused."""
        self._prepare(tmp_path)
        with self._made() as sink:
            self._refuses(sink)

    def test_written_events_are_delivered_in_order(self, tmp_path: Path) -> None:
        """Written events are delivered in order, whatever the form of their batches."""
        self._prepare(tmp_path)
        with self._made() as sink:
            sink.write(_batches())
            assert self.delivered() == [b"0", b"1", b"2", b"3"]

    def test_a_failure_raises_and_can_be_retried(self, tmp_path: Path) -> None:
        """A failed destination raises within a few seconds, and the same object can deliver later without loss."""
        self._prepare(tmp_path)
        with self._made() as sink:
            repair = self.break_destination()
            if repair is None:
                return
            batches = _batches()
            try:
                sink.write(batches)
            except RefusedError as error:
                raise AssertionError("a temporary failure was reported as a permanent refusal") from error
            except Exception as error:  # noqa: BLE001  # the failure that the test expects
                later = error.later if isinstance(error, SinkError) and error.later is not None else batches
            else:
                raise AssertionError("write returned though the destination had failed")
            repair()
            sink.write(later)
            assert set(self.delivered()) == {b"0", b"1", b"2", b"3"}

    def test_no_event_blocks_other_events(self, tmp_path: Path) -> None:
        """No odd headers or bodies (:func:`odd_events`) block other events, together or alone.

        Without dead letters, events that cannot be written are dropped and counted.
        """
        self._prepare(tmp_path)
        odd = list(odd_events())
        with self._made() as sink, closing(_channel(self.context)) as channel:
            channel.put(EventBatch.of_events([*odd, ({}, b"good-1")]))
            for headers, body in odd:
                channel.put(EventBatch.of_bodies([body], headers))
            channel.put(EventBatch.of_lines(b"good-2\n"))
            health = Health()
            runner = SinkRunner(
                "odd", channel, sink, health, dead_letters=None, most_events=1000, most_bytes=sink.most_bytes
            )
            for _ in range(_DELIVERIES):
                runner.deliver(0)
            assert channel.held == 0, f"{channel.held} events are retried: {health.counters.last_error}"
            assert {b"good-1", b"good-2"} <= set(self.delivered())

    def test_writing_nothing_succeeds(self, tmp_path: Path) -> None:
        """Writing nothing, or a batch without events, succeeds."""
        self._prepare(tmp_path)
        with self._made() as sink:
            sink.write([])
            sink.write([EventBatch.of_lines(b"")])
            assert self.delivered() == []

    def test_its_limits_are_numbers(self, tmp_path: Path) -> None:
        """The limits of a delivery are positive numbers, which the sink runner needs."""
        self._prepare(tmp_path)
        with self._made() as sink:
            assert sink.most_events >= 1
            assert sink.most_bytes >= 1

    @contextmanager
    def _made(self) -> Iterator[Sink]:
        sink = self.make()
        try:
            yield sink
        finally:
            begun = time.monotonic()
            sink.close()
            assert time.monotonic() - begun < PATIENCE, f"close took longer than {PATIENCE:.0f} s"


class InterceptorConformance(_Conformance, ABC):
    """An interceptor returns a whole batch, does not change its argument, and treats both forms alike."""

    @abstractmethod
    def make(self) -> Interceptor:
        """Build an interceptor."""

    def test_wrong_options_are_refused(self, tmp_path: Path) -> None:
        """Unknown options and those of :attr:`wrong_options` are refused."""
        self._prepare(tmp_path)
        self._refuses(self.make())

    def test_lines_and_other_bodies_are_treated_alike(self, tmp_path: Path) -> None:
        """A batch of lines and one of other bodies have the same outcome."""
        self._prepare(tmp_path)
        bodies = [b"one", b"", b"two \xff", b"three"]
        lines = EventBatch.of_lines(b"".join(body + b"\n" for body in bodies), {"host": "h"})
        others = EventBatch.of_bodies(bodies, {"host": "h"})
        outcomes = [[body for _, body in self.make().intercept(batch).events()] for batch in (lines, others)]
        assert outcomes[0] == outcomes[1]

    def test_the_given_batch_is_unchanged(self, tmp_path: Path) -> None:
        """The batch that was passed in is unchanged."""
        self._prepare(tmp_path)
        given = EventBatch.of_events([({"n": "1"}, b"one"), ({}, b"two")])
        before = list(given.events())
        self.make().intercept(given)
        assert list(given.events()) == before

    def test_headers_and_bodies_stay_together(self, tmp_path: Path) -> None:
        """Each column has as many values as there are events, and the batch keeps its position."""
        self._prepare(tmp_path)
        events = [({"n": str(number)}, b"%d" % number) for number in range(5)]
        after = self.make().intercept(EventBatch.of_events(events, Position("f", 9)))
        assert after.position == Position("f", 9)
        assert after.count == len(after.bodies()) == len(list(after.headers()))
        assert all(len(column) == after.count for column in after.columns.values())

    def test_no_event_makes_it_raise(self, tmp_path: Path) -> None:
        """No odd headers or bodies (:func:`odd_events`) make the interceptor raise, together or alone."""
        self._prepare(tmp_path)
        odd = list(odd_events())
        for batch in (EventBatch.of_events(odd), *(EventBatch.of_bodies([body], headers) for headers, body in odd)):
            assert self.make().intercept(batch).count <= batch.count

    def test_a_batch_without_events_passes(self, tmp_path: Path) -> None:
        """A batch without events, as other interceptors may leave one, passes."""
        self._prepare(tmp_path)
        for empty in (EventBatch.of_lines(b""), EventBatch.of_bodies([])):
            assert self.make().intercept(empty).count == 0


class SelectorConformance(_Conformance, ABC):
    """A selector names channels of its source only, and counts each event that it drops."""

    @abstractmethod
    def make(self, channels: Mapping[str, BatchChannel]) -> Selector:
        """Build a selector.

        :param channels: the source's channels ``one``, ``two`` and ``three``.
        """

    def test_wrong_options_are_refused(self, tmp_path: Path) -> None:
        """Unknown options and those of :attr:`wrong_options` are refused."""
        with self._selector(tmp_path) as selector:
            self._refuses(selector)

    def test_every_event_has_a_channel_or_is_counted(self, tmp_path: Path) -> None:
        """Each event of either form gets a channel or is counted; with an exclusive selector, one channel at most."""
        with self._selector(tmp_path) as selector:
            for batch in [*_batches(), EventBatch.of_events([({"n": str(n)}, b"%d" % n) for n in range(5)])]:
                routes = selector.select(batch)
                bodies = [body for part in _parts(routes).values() for body in part.bodies()]
                assert set(bodies) <= set(batch.bodies()), "the routes have events that the batch has not"
                assert len(set(bodies)) + routes.dropped == batch.count, "an event has no channel and is not counted"
                assert len(bodies) == len(set(bodies)) or not selector.exclusive, "an event has two channels"

    def test_channels_are_those_of_the_source(self, tmp_path: Path) -> None:
        """No odd headers (:func:`odd_events`) lead to a channel that is not the source's."""
        with self._selector(tmp_path) as selector:
            for batch in [*_batches(), EventBatch.of_events(odd_events())]:
                strange = _parts(selector.select(batch)).keys() - {"one", "two", "three"}
                assert not strange, f"channels that the source does not have: {sorted(strange)}"

    def test_the_position_is_kept(self, tmp_path: Path) -> None:
        """Each part keeps the position, and the batch that was passed in is unchanged."""
        given = EventBatch.of_events([({"n": "1"}, b"one"), ({}, b"two")], Position("f", 9))
        before = list(given.events())
        with self._selector(tmp_path) as selector:
            found = {part.position for part in _parts(selector.select(given)).values()}
            assert found <= {given.position}, f"the position changed: {found}"
        assert list(given.events()) == before

    def test_a_batch_without_events_passes(self, tmp_path: Path) -> None:
        """A batch without events, as interceptors may leave one, passes."""
        with self._selector(tmp_path) as selector:
            for empty in (EventBatch.of_lines(b""), EventBatch.of_bodies([])):
                assert selector.select(empty).dropped == 0

    @contextmanager
    def _selector(self, tmp_path: Path) -> Iterator[Selector]:
        self._prepare(tmp_path)
        channels = {name: _channel(self.context) for name in ("one", "two", "three")}
        try:
            yield self.make(channels)
        finally:
            for channel in channels.values():
                channel.close()


def _problems(options: type, wrong: Mapping[str, Any]) -> Sequence[Problem]:
    try:
        read_options(options, wrong, "component")
    except AgentConfigError as error:
        return error.problems
    return ()


def _parts(routes: Routes) -> dict[str, EventBatch]:
    return {**routes.optional, **routes.required}


def _batches() -> list[EventBatch]:
    return [EventBatch.of_lines(b"0\n1\n", {"host": "h"}), EventBatch.of_bodies([b"2", b"3"])]


def _eventually(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {PATIENCE:.0f} s"
        time.sleep(0.005)
