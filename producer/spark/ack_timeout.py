"""How long a task waits: rather than fail, for as long as something of it is acknowledged now and then.

A fleet of tasks may have more to write than the quota of a logstore takes in the time of all retries; then each waits
for its share. What no waiting mends fails as soon as it does elsewhere: a wrong key or project at once, an endpoint
that does not answer after the usual two and a half minutes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..model.errors import FlushTimeoutError

if TYPE_CHECKING:
    from ..client.producer import Producer  # who plans sends nothing

# A day: whether it is enough, the timeout of the task says, which is at most as long.
_QUOTA_TIMEOUT_MS = 86_400_000
# A shorter longest backoff than the producer's own, so that a fleet uses its quota and each process has a share of it;
# more retries, for the same time.
_MAX_BACKOFF_MS, _RETRIES = 5_000, 34


def defaults_of_task(given: Mapping[str, str], ack_timeout: float) -> dict[str, int]:
    """The producer's options in a task, where the user has not named them.

    :param given: the options that he has named. Who says how often, or for how long, has quotas count as well.
    :param ack_timeout: how long the task waits for an acknowledgement, seconds.
    """
    defaults = {"max_block_ms": int(ack_timeout * 1000)}
    if not given.keys() & {"retries", "delivery_timeout_ms"}:
        defaults["quota_timeout_ms"] = _QUOTA_TIMEOUT_MS
        if "max_retry_backoff_ms" not in given:
            defaults["retries"] = _RETRIES
    return {"max_retry_backoff_ms": _MAX_BACKOFF_MS} | defaults


def send_open(producer: Producer) -> None:
    """Send at once what lingers in open batches; its futures say what became of it.

    :raises ProducerError: the producer is closed.
    """
    with contextlib.suppress(FlushTimeoutError):
        producer.flush(timeout=0)
