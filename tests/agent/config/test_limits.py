"""Limits of memory and CPU of a whole agent."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.agent import Agent, AgentConfigError
from producer.agent.config import limits, parse_toml
from producer.agent.config.limits import Memory, Pace
from producer.agent.config.toml_text import write_toml
from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Context
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.health import Health
from producer.agent.flow.outlet import MemoryFullError, SourceOutlet
from producer.agent.flow.sink_runner import SinkRunner
from producer.agent.run.blueprint import draw
from producer.agent.selectors.replicating import ReplicatingSelector
from producer.runtime.clock import Stop, SystemClock
from producer.runtime.process_memory import resident_bytes
from producer.testing import ManualClock

from ...support.threads import cpu_of
from ...support.waiting import Call, eventually
from ..doubles import RecordingSink, ledger_of, memory_channel, opened, taken
from ..sources.listeners import serving

_TEXT = """
[agent]
name = "a"
state = "{state}"
{limits}
[sources.numbers]
type = "{source}"
{options}
channels = ["queue"]
[channels.queue]
type = "memory"
byte_capacity = "32m"
[sinks.none]
type = "null"
channel = "queue"
"""


def _text(limits: str, state: Path = Path("unused"), source: str = "stress", options: str = "") -> str:
    return _TEXT.format(limits=limits, state=state, source=source, options=options)


class _Used:
    """CPU time in seconds, set by a test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_pause_brings_the_process_back_to_its_share() -> None:
    """CPU use beyond the share is followed by pauses of at most a second; unused time is not saved."""
    clock, used = ManualClock(), _Used()
    pace = Pace(0.5, clock, used)
    clock.advance(100)
    assert pace.pause() == 0
    used.seconds += 0.3
    assert pace.pause() == pytest.approx(0.4)
    clock.advance(0.4)
    assert pace.pause() == pytest.approx(0)
    used.seconds += 10
    assert pace.pause() == 1
    pace.share = None
    assert pace.pause() == 0


def test_a_batch_that_took_far_more_than_a_pause_is_made_up_for() -> None:
    """A costly batch is followed by several pauses, of a minute in all at most."""
    clock, used, paused = ManualClock(), _Used(), list[float]()
    pace = Pace(0.05, clock, used)

    def wait(seconds: float) -> bool:
        paused.append(seconds)
        clock.advance(seconds)
        return False

    used.seconds += 0.5
    pace.rest(wait)
    assert sum(paused) == pytest.approx(10)
    paused.clear()
    used.seconds += 1000
    pace.rest(wait)
    assert sum(paused) == pytest.approx(60)
    paused.clear()
    used.seconds += 0.5
    pace.rest(lambda seconds: wait(seconds) or len(paused) == 3)
    assert len(paused) == 3
    pace.rest(wait, most=2)
    assert len(paused) == 5


def test_a_source_rests_behind_each_batch(tmp_path: Path) -> None:
    """A source rests after each batch; a sender that waits for an answer is delayed by some seconds at most."""
    asked = list[float]()

    class Asked(Pace):
        def rest(self, wait: Callable[[float], object], most: float = 60.0) -> None:
            asked.append(most)

    with opened(memory_channel(tmp_path)) as channel:
        channels = {"c": channel}
        selector = ReplicatingSelector(ReplicatingSelector.Options(), Context("a", "s", tmp_path), channels)
        outlet = SourceOutlet(
            *("s", [], selector, channels, ledger_of("s", channels, selector), Health()), Asked(0.05, SystemClock())
        )
        assert outlet.put_until(EventBatch.of_lines(b"x\n"), Stop())
        outlet.put(EventBatch.of_lines(b"x\n"))
    assert asked == [60.0, 5.0]


@pytest.mark.parametrize(("hurried", "waited"), [(False, [5.0]), (True, [])])
def test_a_sink_rests_after_each_delivery_but_not_while_the_agent_waits_for_channels_to_become_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hurried: bool, waited: list[float]
) -> None:
    """A sink rests after each delivery, but not while the agent waits for channels to become empty."""
    stop, waits = Stop(ManualClock()), list[float]()
    monkeypatch.setattr(stop, "wait", waits.append)

    class Asked(Pace):
        def rest(self, wait: Callable[[float], object], most: float = 60.0) -> None:  # the signature of rest
            assert bool(wait(5.0)) is hurried
            stop.set()

    pace, sink = Asked(0.05, ManualClock()), RecordingSink()
    with opened(memory_channel(tmp_path)) as channel:
        channel.put(EventBatch.of_lines(b"x\n"))
        channel.hurried = hurried
        SinkRunner("k", channel, sink, Health(), dead_letters=None, most_events=9, most_bytes=9, pace=pace).run(stop)
    assert (sink.bodies, waits) == ([b"x"], waited)


def test_an_agent_stays_within_its_share_of_the_processors(tmp_path: Path) -> None:
    """An agent whose source would use a whole processor stays within its share, since both ends pause."""
    agent = Agent(parse_toml(_text("max_cpu = 0.2", tmp_path, options="batch_size = 1000\nsize = 5000")))
    agent.start()
    try:
        own = [part._thread for parts in (agent.sources, agent.sinks) for part in parts.values()]
        used, begun = cpu_of(own), time.monotonic()
        assert not agent.wait(1.0)
        share = (cpu_of(own) - used) / (time.monotonic() - begun)
        assert agent.health_of("sinks.none").counters.get("EventDrainSuccessCount")
    finally:
        assert agent.stop(60)
    assert share < 0.4


@pytest.mark.parametrize(("limit", "well"), [("88m", True), ("87m", False)])
def test_a_memory_limit_below_the_components_needs_is_refused(limit: str, well: bool) -> None:
    """A memory limit below the components' needs is refused, with each component's need and the limit's line."""
    config = parse_toml(_text(f'max_memory_bytes = "{limit}"'))
    if well:
        draw(config)
        return
    with pytest.raises(AgentConfigError) as raised:
        draw(config)
    (problem,) = raised.value.problems
    assert str(problem) == (
        "line 5: agent.max_memory_bytes: must be at least 88m, got 87m; the components may need, in MiB: the process"
        " 40, channels.queue 32, sources.numbers 8, sinks.none 8"
    )


def test_a_sources_limit_for_the_requests_of_all_senders_counts_as_its_need() -> None:
    """A source's limit for the requests of all senders counts as its need."""
    text = _text('max_memory_bytes = "100m"', source="http", options="port = 0")
    with pytest.raises(AgentConfigError, match=r"sources\.numbers 128"):
        draw(parse_toml(text))


@pytest.mark.parametrize("wrong", ["max_cpu = 0", 'max_cpu = "half"', 'max_memory_bytes = "much"'])
def test_an_invalid_limit_is_a_problem_with_its_line(wrong: str) -> None:
    """An invalid limit is a problem with its line."""
    with pytest.raises(AgentConfigError, match=f"line 5: agent.{wrong.split(maxsplit=1)[0]}: must be"):
        draw(parse_toml(_text(wrong)))


def test_convert_writes_limits_as_they_were_read() -> None:
    """``convert`` writes limits as they were read."""
    config = parse_toml(_text('max_memory_bytes = "88m"\nmax_cpu = 0.5'))
    assert parse_toml(write_toml(config)).limits == config.limits


def test_at_nine_tenths_of_its_limit_the_memory_is_full_it_is_not_measured_more_often_than_necessary() -> None:
    """At nine tenths of its limit the memory is full; it is not measured more often than necessary."""
    clock, used = ManualClock(), [90]
    memory = Memory(100, clock, lambda: used[0])
    assert not memory.is_full()
    used[0] = 91
    assert not memory.is_full()
    clock.advance(0.02)
    assert memory.is_full()
    memory.limit = None
    assert not memory.is_full()


@pytest.mark.parametrize(("limit", "left"), [(400, 40), (88, 16), (60, 10), (44, 4.4)])
def test_a_share_of_the_memory_limit_is_reserved_for_data_in_flight(limit: int, left: float) -> None:
    """A tenth of the limit, 16 MiB, or half of what the bare process leaves, is reserved for data in flight."""
    used = [0.0]
    for more, full in ((-0.01, False), (0.01, True)):
        used[0] = (limit - left + more) * (1 << 20)
        assert Memory(limit << 20, ManualClock(), lambda: int(used[0]), lambda: None).is_full() is full


def test_memory_that_is_free_is_given_back_before_sources_wait() -> None:
    """Before sources wait, memory that the C library keeps is returned to the system, once a second at most."""
    clock, used, given = ManualClock(), [95], list[int]()

    def give_back() -> None:
        given.append(used[0])
        used[0] = min(used[0], 95 - 10 * len(given))

    memory = Memory(100, clock, lambda: used[0], give_back)
    assert not memory.is_full()
    used[0] = 95
    clock.advance(0.5)
    assert memory.is_full()
    clock.advance(0.5)
    assert not memory.is_full()
    assert given == [95, 95]
    limits.give_back()


def test_a_request_is_refused_before_it_is_read_while_there_is_no_memory() -> None:
    """Without memory a request gets 503 once its head arrived, since decoding a body takes many times its size."""
    with serving("http", retry_after=7) as served, served.connect() as peer:
        served.outlet.short_of_memory = True  # type: ignore[attr-defined]
        peer.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n")
        answer = peer.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 7\r\n" in answer


def _outlet(channel: BatchChannel, used: list[int], state: Path) -> SourceOutlet:
    """Return the outlet of a process with a limit of 100 bytes; each check uses the next of ``used``."""
    channels = {"c": channel}
    selector = ReplicatingSelector(ReplicatingSelector.Options(), Context("a", "s", state), channels)
    memory = Memory(100, ManualClock(), lambda: used[0])
    memory.is_full = lambda: used[0] > 90  # type: ignore[method-assign]
    return SourceOutlet("s", [], selector, channels, ledger_of("s", channels, selector), Health(), memory=memory)


def test_at_its_memory_limit_the_process_delays_sources_that_can_wait_and_raises_to_others(tmp_path: Path) -> None:
    """At its memory limit the process delays sources that can wait, and raises to others, as a full channel does."""
    used, batch = [10], EventBatch.of_lines(b"a\n")
    with opened(memory_channel(tmp_path)) as channel:
        outlet = _outlet(channel, used, tmp_path)
        outlet.put(batch)
        used[0] = 95
        with pytest.raises(MemoryFullError, match=r"at its memory limit of 100 bytes \(max_memory_bytes\)"):
            outlet.put(batch, 0.01)
        stop = Stop()
        stop.set()
        assert not outlet.put_until(batch, stop)
        waiting = Call(lambda: outlet.put_until(batch, Stop()))
        assert channel.held == 1
        used[0] = 10
        assert waiting.result() is True
        assert taken(channel) == [b"a", b"a"]


def test_a_channel_that_is_empty_takes_a_batch_whatever_the_process_has(tmp_path: Path) -> None:
    """An empty channel takes a batch at any memory use, since waiting would free nothing."""
    with opened(memory_channel(tmp_path)) as channel:
        assert _outlet(channel, [95], tmp_path).put_until(EventBatch.of_lines(b"a\n"), Stop())
        assert taken(channel) == [b"a"]


def test_an_agent_stays_within_its_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sources wait before the process exceeds its limit, although small events need several times their bytes."""
    gc.collect()
    limits.give_back()  # or memory of earlier tests would become free later, and hold more events than this test puts
    room = 12 << 20  # for the agent itself and what it imports, and then for events
    limit = max(
        int((resident_bytes() + room) / (1 - limits._IN_FLIGHT)), resident_bytes() + room + limits._LEAST_IN_FLIGHT
    )
    text = _text(f"max_memory_bytes = {limit}", tmp_path, options="size = 20")
    dead = text.replace('type = "null"', 'type = "http"\nendpoint = "http://127.0.0.1:9/x"')
    agent = Agent(parse_toml(dead))
    agent.start()
    try:
        eventually(lambda: "at its memory limit" in caplog.text, "the source to wait", 120)
        assert agent.health_of("sources.numbers").counters.get("EventAcceptedCount") > 100
        assert resident_bytes() <= limit
    finally:
        agent.stop(1)
