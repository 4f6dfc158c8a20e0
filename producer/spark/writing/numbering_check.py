"""What a refused write does to its sequence number: ``exactlyOnce`` stands on that, and the protocol does not say.

Where a refused number is used up, nobody can tell later whether a number that the server knows was stored or refused:
rows of a task that is run again would be taken for written, and be lost. So the target is asked before the job: two
requests that it must refuse, since their bodies are no logs, under a key of their own, the second with the lower
number. A server that frees the numbers of refused requests finds fault with both bodies. One that does not finds the
second number used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging

from ...client import Producer
from ...errors import ConfigError, ProducerError, ResultFailedError
from ...numbering import SequenceKey
from ...stream import Stream
from ..blame import blames_rows
from ..options import knows_credentials
from .options import WriteOptions

_log = logging.getLogger("producer.spark.write")

_RETRIES, _LONGEST_PAUSE_MS = 3, 1000

#: The same for every job, so that the service has but one to remember: what was answered once is answered again.
_KEY = hashlib.sha256(b"exactlyOnce: is the number of a refused request free?").hexdigest()[:32]

#: No LogGroup: a field of a wire type that there is not.
_NO_LOGS = b"\xff\xff\xff\xff"


def check_numbering(options: WriteOptions) -> None:
    """Ask the target of a write whether the number of a refused request is free afterwards.

    What cannot be asked (no answer, a key that may not write) is logged, and not an error: the tasks will meet it.

    :raises ConfigError: it is not.
    """
    if not knows_credentials(options.target):
        return
    try:
        is_used_up = _is_used_up(options)
    except (ProducerError, TimeoutError) as error:
        _log.warning("could not ask %s what becomes of refused numbers, going on: %s", options.target, error)
        return
    if is_used_up:
        raise ConfigError(
            "deliveryGuarantee",
            f"{options.target} uses up the sequence numbers of requests that it refuses, so rows of a refused request "
            "could be taken for written: use atLeastOnce",
            options.guarantee.value,
        )


def _is_used_up(options: WriteOptions) -> bool:
    target = options.target
    quick = dataclasses.replace(options.config, retries=_RETRIES, max_retry_backoff_ms=_LONGEST_PAUSE_MS)
    with Producer(config=quick) as producer:
        producer.put_project_config(target.project)
        stream = producer.stream(target.project.project, target.logstore, idempotent=SequenceKey(_KEY))
        _refused(stream, 2, options.ack_timeout)
        return not _refused(stream, 1, options.ack_timeout)


def _refused(stream: Stream, number: int, timeout: float | None) -> bool:
    """Whether the body was refused, rather than the number known.

    :raises ResultFailedError: it was something else.
    """
    try:
        stream._send_numbered(_NO_LOGS, 1, number).result(timeout)
    except ResultFailedError as error:
        if not blames_rows(error.result):
            raise
        stream.resume()
        return True
    return False
