"""PipelineOwner: the producer as its pipeline sees it."""

from __future__ import annotations

import json
import threading
import weakref
from contextlib import suppress
from functools import partial

from ..pipeline.owner import Owner
from ..pipeline.sender import Sender
from ..pipeline.shutdown import Shutdown
from ..runtime.loggers import get_logger
from . import at_exit
from .loss_report import LossReport

_log = get_logger("loghub.pipeline")
_stats_log = get_logger("loghub.stats")


class PipelineOwner(Owner):
    """A weak reference to a producer, so that the pipeline of a dropped producer is closed.

    :param losses: the report of lost records, written when all is closed.
    :param drain_timeout: seconds that the drain of a dropped producer may take.
    """

    def __init__(self, producer: object, name: str, losses: LossReport, drain_timeout: float) -> None:
        self._producer, self._name = weakref.ref(producer), name
        self._losses, self._drain_timeout = losses, drain_timeout

    def owns(self, sender: Sender, shutdown: Shutdown) -> tuple[Sender, Shutdown]:
        """Keep the pipeline that was made for the producer, and return it."""
        self._sender, self._shutdown = sender, shutdown
        return sender, shutdown

    def begins(self) -> bool:
        return at_exit.drain_at_exit(self._shutdown, self._sender, self._name, self._drain_timeout)

    def is_gone(self) -> bool:
        return self._producer() is None

    def abandon(self) -> None:
        """Drain the pipeline on another thread: the drain ends the mover, which calls this."""
        drain = partial(at_exit.drain, self._shutdown, self._name, self._drain_timeout)
        # An interpreter that starts no more threads is exiting, and drains this pipeline with the others.
        with suppress(RuntimeError):
            threading.Thread(target=drain, name=f"{self._name}-closer", daemon=True).start()

    def report(self) -> None:
        try:
            _stats_log.info("%s: %s", self._name, json.dumps(self._sender.stats().to_dict()))
        except Exception:  # noqa: BLE001  # a channel may be user code, and the mover must continue
            _log.exception("%s: the statistics could not be logged", self._name)

    def closed(self) -> None:
        self._losses.write()
