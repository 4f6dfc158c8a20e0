"""A component that fails is run again, and the rest goes on."""

import threading
from itertools import count

import pytest

from producer.agent.events.counters import Counters
from producer.agent.run import supervisor
from producer.agent.run.supervisor import State, Supervised
from producer.runtime.clock import Clock, Deadline, Stop, SystemClock
from producer.testing import ManualClock

from ...support.waiting import eventually


def _soon() -> Deadline:
    return Deadline.after(SystemClock(), 20)


def test_a_component_that_fails_is_run_again_after_a_pause_that_grows() -> None:
    """One second, two, four; and the reason is kept."""
    clock, runs, began = ManualClock(), count(1), threading.Semaphore(0)

    def run(_stop: Stop) -> None:
        began.release()
        if next(runs) < 4:
            raise OSError("broken")

    supervised = Supervised("source", "s", run, Counters(), clock)
    supervised.start()
    for pause in (1.0, 2.0, 4.0):
        assert began.acquire(timeout=20)
        eventually(lambda: supervised.state is State.WAITING and clock.waiting > 0)
        clock.advance(pause - 0.01)
        assert not began.acquire(timeout=0.01)
        clock.advance(0.02)
    assert began.acquire(timeout=20)
    eventually(lambda: supervised.state is State.FINISHED)
    assert (supervised._counters.get("RestartCount"), supervised._counters.last_error) == (3, "OSError: broken")


def test_what_is_to_run_again_does_so_at_once_and_counts_as_no_failure() -> None:
    """Its run is told to end, and there is another one; not so behind the end of the component."""
    runs = list[Stop]()

    def run(stop: Stop) -> None:
        runs.append(stop)
        assert stop.wait(60)

    counters = Counters()
    supervised = Supervised("source", "s", run, counters, SystemClock())
    supervised.start()
    eventually(lambda: len(runs) == 1)
    supervised.again()
    eventually(lambda: len(runs) == 2)
    supervised.stop()
    assert supervised.join(_soon())
    assert [stop.is_set() for stop in runs] == [True, True]
    assert (supervised.state, counters.get("RestartCount")) == (State.STOPPED, 0)
    supervised.again()
    assert len(runs) == 2


def test_pauses_are_a_minute_at_most_and_short_again_after_a_minute_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a component that works for a while between two failures nobody waits long for the next run."""
    clock, runs, waited = ManualClock(), count(1), list[float]()

    def run(_stop: Stop) -> None:
        number = next(runs)
        if number == 9:
            clock.advance(61)
        if number < 11:
            raise OSError("broken")

    supervised = Supervised("source", "s", run, Counters(), clock)
    monkeypatch.setattr(supervised._stop, "wait", waited.append)
    supervised._live()
    assert waited == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 1.0, 2.0]


def test_a_component_is_run_again_though_the_log_handler_raises(raising_handler: list[str]) -> None:
    """What tells of its failure is no end of its thread."""
    clock, runs = ManualClock(), count(1)

    def run(_stop: Stop) -> None:
        if next(runs) == 1:
            raise OSError("broken")

    supervised = Supervised("source", "s", run, Counters(), clock)
    supervised.start()
    eventually(lambda: supervised.state is State.FINISHED or clock.waiting > 0)
    clock.advance(1.1)
    assert supervised.join(_soon())
    assert (next(runs), len(raising_handler)) == (3, 1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_component_that_would_end_the_process_has_failed(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """A function of a user's that calls ``sys.exit``: it is told and run again, and not taken to be finished."""
    clock, runs = ManualClock(), count(1)

    def run(stop: Stop) -> None:
        if next(runs) == 1:
            raise error
        stop.wait()

    supervised = Supervised("source", "s", run, Counters(), clock)
    supervised.start()
    eventually(lambda: supervised.state is State.WAITING and clock.waiting > 0)
    clock.advance(1.1)
    eventually(lambda: supervised.state is State.RUNNING)
    supervised.stop()
    eventually(lambda: supervised.state is State.STOPPED)
    assert f"source s failed, and is restarted in 1 s: {type(error).__name__}" in caplog.text


def test_a_component_that_is_told_to_stop_ends() -> None:
    """It is not run again, also while it waits for its next run."""
    began = threading.Event()

    def run(stop: Stop) -> None:
        began.set()
        stop.wait()

    working = Supervised("source", "s", run, Counters(), SystemClock())
    working.start()
    assert began.wait(60)
    working.stop()
    assert working.join(_soon())
    assert working.state is State.STOPPED


def test_a_component_that_waits_for_its_next_run_ends_at_once() -> None:
    """The pause is no reason to hold an agent's end up."""

    def fail(_stop: Stop) -> None:
        raise OSError

    clock = ManualClock()
    supervised = Supervised("sink", "k", fail, Counters(), clock)
    supervised.start()
    eventually(lambda: supervised.state is State.WAITING and clock.waiting > 0)
    supervised.stop()
    eventually(lambda: supervised.state is State.STOPPED)


def test_a_component_that_is_told_to_stop_just_before_it_runs_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run would have a stop of its own that nobody sets."""
    runs = list[Stop]()
    supervised = Supervised("source", "s", runs.append, Counters(), SystemClock())

    def stopped_meanwhile(clock: Clock) -> Stop:
        supervised.stop()
        return Stop(clock)

    monkeypatch.setattr(supervisor, "Stop", stopped_meanwhile)
    supervised.start()
    assert supervised.join(_soon())
    assert (supervised.state, runs) == (State.STOPPED, [])


def test_each_change_of_state_is_told() -> None:
    """To whoever waits for the end, and looks no sooner."""
    clock, told, runs = ManualClock(), list[State](), count()

    def run(_stop: Stop) -> None:
        if next(runs) == 0:
            raise OSError("broken")

    supervised = Supervised("source", "s", run, Counters(), clock, lambda: told.append(supervised.state))
    supervised.start()
    eventually(lambda: clock.waiting)
    clock.advance(1.0)
    assert supervised.join(_soon())
    eventually(lambda: len(told) == 4)
    assert told == [State.RUNNING, State.WAITING, State.RUNNING, State.FINISHED]
