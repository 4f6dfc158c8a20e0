"""Owner: the producer that a pipeline works for, as far as the pipeline has to know it."""

from __future__ import annotations


class Owner:
    """The producer of a pipeline. This base class never goes away and logs nothing."""

    def begins(self) -> bool:
        """Note the start, before the first record is accepted; return False if the process will not close the
        pipeline.
        """
        return True

    def is_gone(self) -> bool:
        """Return True if no code of the application holds the producer any more."""
        return False

    def abandon(self) -> None:
        """Close the pipeline of a producer that is gone; called on the mover's thread."""

    def report(self) -> None:
        """Log the statistics; must not raise."""

    def closed(self) -> None:
        """Note that all is closed; called once."""
