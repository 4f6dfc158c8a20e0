"""PipelineOwner: a producer, as its pipeline knows it."""

from __future__ import annotations

import json
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import Protocol

from ..pipeline.owner import Owner
from ..pipeline.sender import Sender
from ..pipeline.shutdown import Shutdown
from ..runtime.loggers import get_logger
from . import at_exit
from .loss_report import LossReport

_log = get_logger("loghub.pipeline")
_stats_log = get_logger("loghub.stats")


class Named(Protocol):
    """A producer."""

    name: str


class PipelineOwner(Owner):
    """Knows a producer weakly, so that one that the application drops is found to be gone, and closed.

    :param losses: reports lost records when all is closed.
    :param drain_timeout: seconds that a close without the application gets.
    """

    def __init__(self, producer: Named, losses: LossReport, drain_timeout: float) -> None:
        self._producer, self._name = weakref.ref(producer), producer.name
        self._losses, self._drain_timeout = losses, drain_timeout

    def owns(self, sender: Sender, shutdown: Shutdown) -> tuple[Sender, Shutdown]:
        """Take over what was made for the producer; return it."""
        self._sender, self._shutdown = sender, shutdown
        return sender, shutdown

    def begins(self) -> bool:
        return at_exit.drain_at_exit(self._shutdown, self._name, self._drain_timeout)

    def is_gone(self) -> bool:
        return self._producer() is None

    def abandon(self) -> None:
        """Drain the pipeline, on a thread of its own, since it ends the mover."""
        drain = partial(at_exit.drain, self._shutdown, self._name, self._drain_timeout)
        # An interpreter that starts no threads any more is exiting, and drains this pipeline with the others.
        with suppress(RuntimeError):
            threading.Thread(target=drain, name=f"{self._name}-closer", daemon=True).start()

    def report(self) -> None:
        try:
            _stats_log.info("%s: %s", self._name, json.dumps(self._sender.stats().to_dict()))
        except Exception:  # noqa: BLE001  # a channel is a user's class, and the mover must go on
            _log.exception("%s: the statistics could not be logged", self._name)

    def closed(self) -> None:
        self._losses.say()
