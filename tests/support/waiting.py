"""Wait for other threads, with a deadline."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

#: Seconds after which a waiting test has failed: for a hang, not for slowness on a busy machine.
PATIENCE = 60.0


def allowed(seconds: float) -> float:
    """Return the limit for an operation of ``seconds`` on an idle machine; longer where cores are busy."""
    return seconds * max(1.0, 2 * os.getloadavg()[0] / (os.cpu_count() or 1))


def eventually(condition: Callable[[], object], what: str = "the condition", patience: float = PATIENCE) -> None:
    """Return once ``condition()`` is true; fail after ``patience`` seconds."""
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {patience} s")
        time.sleep(0.001)


def passed(event: threading.Event, what: str = "the event") -> None:
    """Return once ``event`` is set; fail after :data:`PATIENCE` seconds."""
    assert event.wait(PATIENCE), f"{what} was not set within {PATIENCE} s"


class Call:
    """A call on its own thread, with its outcome."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.value: Any = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value = self._function()
        except BaseException as error:  # noqa: BLE001  # raised to the caller of result()
            self.error = error

    @property
    def done(self) -> bool:
        return not self.thread.is_alive()

    def result(self, patience: float = PATIENCE) -> Any:
        """Wait at most ``patience`` seconds for the call to end; return its value or raise its error."""
        self.thread.join(patience)
        assert self.done, "the call did not end"
        if self.error is not None:
            raise self.error
        return self.value
