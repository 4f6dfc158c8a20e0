"""Tell the log records that a producer's work has caused from the application's own, for every integration."""

from __future__ import annotations

from ..runtime.internal_threads import logs_its_work

#: How the loggers of this package begin.
OWN = "producer."


def feeds_back(name: object, thread: int | None) -> bool:
    """Return True if a producer's work has caused the record: sending it would cause the next one.

    :param name: of its logger; anything else than text names none.
    :param thread: the identifier of the thread that logged it.
    """
    return (isinstance(name, str) and name.startswith(OWN)) or logs_its_work(thread)
