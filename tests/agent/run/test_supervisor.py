"""A failed component is restarted while the others continue."""

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
    """A failed component is restarted after one, two, four seconds; its error is kept, and named meanwhile."""
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
        assert supervised.status() == "failed, and will be restarted: OSError: broken"
        clock.advance(pause - 0.01)
        assert not began.acquire(timeout=0.01)
        clock.advance(0.02)
    assert began.acquire(timeout=20)
    eventually(lambda: supervised.state is State.FINISHED)
    assert (supervised._counters.get("RestartCount"), supervised._counters.last_error) == (3, "OSError: broken")


def test_a_requested_restart_happens_at_once_does_not_count_as_a_failure() -> None:
    """A requested restart happens at once, does not count as a failure, and does not happen after the end."""
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
    """Pauses are at most a minute, and short again after a minute of work."""
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
    """A log handler that raises does not prevent a restart."""
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
    """A component that calls ``sys.exit`` has failed, and is restarted."""
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
    assert f"source s failed; restart in 1 s: {type(error).__name__}" in caplog.text


def test_a_component_that_is_asked_to_stop_while_it_waits_for_its_restart_is_not_restarted() -> None:
    """A component that is asked to stop while it waits for its restart is not restarted."""
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
    """A stop ends the pause before a restart at once."""

    def fail(_stop: Stop) -> None:
        raise OSError

    clock = ManualClock()
    supervised = Supervised("sink", "k", fail, Counters(), clock)
    supervised.start()
    eventually(lambda: supervised.state is State.WAITING and clock.waiting > 0)
    supervised.stop()
    eventually(lambda: supervised.state is State.STOPPED)


def test_a_component_that_is_asked_to_stop_just_before_it_runs_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that is asked to stop just before it runs does not run."""
    runs = list[Stop]()
    supervised = Supervised("source", "s", runs.append, Counters(), SystemClock())

    def stopped_meanwhile(clock: Clock) -> Stop:
        supervised.stop()
        return Stop(clock)

    monkeypatch.setattr(supervisor, "Stop", stopped_meanwhile)
    supervised.start()
    assert supervised.join(_soon())
    assert (supervised.state, runs) == (State.STOPPED, [])


def test_each_change_of_state_is_reported_to_a_waiting_thread_at_once() -> None:
    """Each change of state is reported to a waiting thread at once."""
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
