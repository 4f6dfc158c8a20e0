"""The defaults of a task's producer: a throttled task waits as long as some of its rows are acknowledged.

A fleet of tasks may write more than a logstore's quota takes in the time of all retries. Then each task waits for its
share of the quota. Other errors fail as soon as elsewhere: a wrong key or project at once, an endpoint that does not
answer after two and a half minutes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..model.errors import FlushTimeoutError

if TYPE_CHECKING:
    from ..client.producer import Producer  # planning needs no producer

# A day. The task's own timeout is at most as long, and decides.
_QUOTA_TIMEOUT_MS = 86_400_000
# A lower limit of the backoff than the producer's own, so that a fleet uses its quota and each process gets a share.
# More retries make up for it, so that the total time is the same.
_MAX_BACKOFF_MS, _RETRIES = 5_000, 34


def defaults_of_task(given: Mapping[str, str], ack_timeout: float) -> dict[str, int]:
    """Return the defaults of the producer's options in a task.

    :param given: the user's options. If they limit retries or the delivery time, quota errors count, too.
    :param ack_timeout: the longest wait for an acknowledgement, seconds.
    """
    defaults = {"max_block_ms": int(ack_timeout * 1000)}
    if not given.keys() & {"retries", "delivery_timeout_ms"}:
        defaults["quota_timeout_ms"] = _QUOTA_TIMEOUT_MS
        if "max_retry_backoff_ms" not in given:
            defaults["retries"] = _RETRIES
    return {"max_retry_backoff_ms": _MAX_BACKOFF_MS} | defaults


def send_open(producer: Producer) -> None:
    """Send open batches without lingering. Their futures have the results.

    :raises ProducerError: the producer is closed.
    """
    with contextlib.suppress(FlushTimeoutError):
        producer.flush(timeout=0)
