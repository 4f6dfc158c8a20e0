"""Logs each loss of followed files once; the last one is the reason why the run failed."""

from __future__ import annotations

from ...runtime.loggers import get_logger
from ..figures import Figures

_log = get_logger("loghub.ship.follow")


class Losses:
    """Sentences about bytes that were gone before they could be shipped.

    :ivar last: the last of them; None if there was none.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        self._logged = 0

    def log(self, figures: Figures) -> None:
        """Log the losses since the last call.

        :param figures: the counters of the whole run.
        """
        for loss in figures.lost[self._logged :]:
            self.last = loss
            _log.error("%s", loss)
        self._logged = len(figures.lost)
