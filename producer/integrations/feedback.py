"""Detect log records that a producer's work causes, for all integrations."""

from __future__ import annotations

from ..runtime.internal_threads import logs_its_work

#: The prefix of this package's loggers, and of its modules, by which loguru names loggers.
OWN = "loghub."
_OWN_MODULES = "producer."


def feeds_back(name: object, thread: int | None) -> bool:
    """Return True if a producer's work caused the record: sending it would cause the next one.

    :param name: the name of its logger; anything but text counts as no name.
    :param thread: the identifier of the thread that logged it; None if unknown.
    """
    return (isinstance(name, str) and name.startswith((OWN, _OWN_MODULES))) or logs_its_work(thread)
