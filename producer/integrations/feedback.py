"""Which records of ``logging`` a producer has caused: what sends them would cause the next ones."""

from __future__ import annotations

from ..own_threads import is_at_work

#: Own records, and those of what a producer's threads call.
OWN = "producer."
CALLED = ("urllib3", "requests", "charset_normalizer", "chardet")


def feeds_back(name: str, thread: int | None) -> bool:
    """Whether what a producer does has caused the record.

    :param name: of its logger.
    :param thread: the identifier of the thread that logged it.
    """
    return name.startswith(OWN) or (name.partition(".")[0] in CALLED and is_at_work(thread))
