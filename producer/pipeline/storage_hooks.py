"""Backing: where the records of a pipeline are kept until they are settled, as far as the pipeline has to know it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .sending.numbers import NumberJournal
from .settling.outcomes import NobodyListens, OutcomeListener


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """What a pipeline is given by those whose records it delivers; as it is, for records that exist nowhere else.

    If the listener keeps the records, they are tried again without an end, unless the options say otherwise, and wait
    for what somebody can mend. Of every stream one batch is on its way at a time, so that they arrive in the order in
    which they were fed.

    :ivar listener: hears of every outcome.
    :ivar journal: where the numbers of idempotent streams are written down; None if they do not outlive the process.
    :ivar without_threads: what becomes of records if no threads can be started; for the log.
    """

    listener: OutcomeListener = field(default_factory=NobodyListens)
    journal: NumberJournal | None = None
    without_threads: str = "records are sent by those who call send, flush and close"
