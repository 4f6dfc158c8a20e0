"""What was lost while files were followed: told once, and the reason why the run has failed."""

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
        self._told = 0

    def tell(self, figures: Figures) -> None:
        """Log what is new.

        :param figures: of everything so far.
        """
        for loss in figures.lost[self._told :]:
            self.last = loss
            _log.error("%s", loss)
        self._told = len(figures.lost)
