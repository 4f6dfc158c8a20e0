"""Owner: the producer that a pipeline works for, as far as the pipeline has to know it."""

from __future__ import annotations


class Owner:
    """What a pipeline asks and tells its producer; by itself, one that is never gone and logs nothing."""

    def begins(self) -> bool:
        """Called once, before the first record is accepted; False if the process is past closing the pipeline."""
        return True

    def is_gone(self) -> bool:
        """Return True if no code of the application holds the producer any more."""
        return False

    def abandon(self) -> None:
        """Called on the mover's thread once it is gone."""

    def report(self) -> None:
        """Log the statistics; must not raise."""

    def closed(self) -> None:
        """Called once, when all is closed."""
