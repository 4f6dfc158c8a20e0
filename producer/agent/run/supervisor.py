"""Supervise a component on a thread of its own, and restart it after a pause when it fails.

The pause grows from one second to a minute, and is reset once the component has run for a minute.
"""

from __future__ import annotations

import enum
import threading
import traceback
from collections.abc import Callable

from ...model.errors import ProducerError
from ...runtime.backoff import Backoff
from ...runtime.clock import Clock, Deadline, Stop, WaitingRoom
from ...runtime.loggers import get_logger
from ...runtime.rate_limited_log import RateLimitedLog
from ...text.printable import without_userinfo
from ..config.options import words_of
from ..events.counters import Counters

_log = get_logger("loghub.agent")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
_WORKED = 60.0


class State(enum.Enum):
    """The state of a component."""

    NEW = "new"
    RUNNING = "running"
    #: It failed, and will be restarted.
    WAITING = "waiting"
    #: It had nothing left to do.
    FINISHED = "finished"
    STOPPED = "stopped"


class Supervised:
    """A component that is restarted when it fails.

    :param kind: ``source`` or ``sink``, for messages.
    :param run: builds the component, and runs it until its ``Stop`` is set.
    :param changed: called after each change of state.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        run: Callable[[Stop], None],
        counters: Counters,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.kind, self.name = kind, name
        self._run, self._counters, self._clock, self._changed = run, counters, clock, changed
        self._stop = Stop(clock)
        self._run_stop = Stop(clock)  # of the present run
        self._again: Stop | None = None  # of a run that is restarted at once
        self._room = WaitingRoom(clock, look_again=1.0)
        self.state = State.NEW
        self._repeated = RateLimitedLog(clock)
        self._thread = threading.Thread(target=self._live, name=f"producer-agent-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask the component to end."""
        self._stop.set()
        self._run_stop.set()

    def again(self) -> None:
        """End the present run, and start another one at once."""
        run = self._again = self._run_stop
        run.set()

    def status(self) -> str:
        """Describe the state for the operator, with the error before a restart."""
        if self.state is State.WAITING:
            return f"failed, and will be restarted: {self._counters.last_error}"
        return f"is {self.state.value}"

    @property
    def stopping(self) -> bool:
        """True if the component was asked to end."""
        return self._stop.is_set()

    def join(self, deadline: Deadline) -> bool:
        """Wait for the end. Return False on a timeout."""
        return self._room.wait_until(lambda: self.state in (State.FINISHED, State.STOPPED), deadline)

    def _live(self) -> None:
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            while not self._stop.is_set():
                begun = self._clock.monotonic()
                failure = self._work()
                if failure is None:
                    if self._again is self._run_stop:
                        continue
                    break
                if self._clock.monotonic() - begun > _WORKED:
                    backoff.reset()
                pause = backoff.next_pause()
                self._log_failure(failure, pause)
                self._stop.wait(pause)
        finally:
            self._become(State.STOPPED if self._stop.is_set() else State.FINISHED)

    def _work(self) -> BaseException | None:
        """Run the component once. Return its error; None if it ended normally."""
        self._run_stop = Stop(self._clock)
        if self._stop.is_set():
            return None
        self._become(State.RUNNING)
        try:
            self._run(self._run_stop)
            return None
        except BaseException as error:  # noqa: BLE001  # sys.exit included, since this is not the main thread
            self._counters.last_error = f"{type(error).__name__}: {words_of(error)}"
            self._counters.add(RestartCount=1)
            self._become(State.WAITING)
            return error

    def _log_failure(self, error: BaseException, pause: float) -> None:
        """Log a failure, with a traceback unless the error is a documented one."""
        more = self._repeated.due_error(error)
        if more is None:
            return
        trace, masked = _trace_of(error), ""
        if trace != without_userinfo(trace):  # the text replaces the traceback, which would show a password
            masked = f"\n{without_userinfo(trace)}"
        _log.error(
            "%s %s failed; restart in %.0f s: %s: %s%s%s",
            *(self.kind, self.name, pause, type(error).__name__, words_of(error), more, masked),
            exc_info=error if trace and not masked else None,
        )

    def _become(self, state: State) -> None:
        self.state = state
        self._room.wake_all()
        self._changed()


def _trace_of(error: BaseException) -> str:
    """Return the traceback; empty for a documented error."""
    if isinstance(error, ProducerError | OSError):
        return ""
    return "".join(traceback.format_exception(error)).rstrip()
