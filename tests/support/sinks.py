"""Provide sinks that block or fail where a test wants them to."""

import threading

from producer.model.errors import NetworkError
from producer.model.interfaces import Delivery, Receipt
from producer.testing import ScriptedSink
from tests.support.waiting import PATIENCE


class GatedSink(ScriptedSink):
    """A scripted sink whose attempts wait at a gate."""

    def __init__(self, *script: object, projects: set[str] | None = None) -> None:
        super().__init__(script)  # type: ignore[arg-type]
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.projects = projects

    def write(self, delivery: Delivery) -> Receipt:
        if self.projects is None or delivery.key.project in self.projects:
            self.entered.release()
            assert self.gate.wait(PATIENCE), "the gate was not opened"
        return super().write(delivery)


class DeadSink(ScriptedSink):
    """A sink whose every attempt fails with a network error."""

    def __init__(self, *, ambiguous: bool = False) -> None:
        super().__init__()
        self.ambiguous = ambiguous

    def write(self, delivery: Delivery) -> Receipt:
        with self._lock:
            self.attempts.append(delivery)
        raise NetworkError("RequestError", "no route to host", may_have_been_stored=self.ambiguous)
