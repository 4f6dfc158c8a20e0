"""Check whether a server uses up the sequence number of a refused request. The protocol does not say.

Exactly-once delivery depends on it. If a refused number is used up, a number that the server knows may have been stored
or refused. Rows that a task sends again would count as written, and would be lost.

So two requests go to the target before the job. Their bodies are not logs, so the server must refuse them. They have a
hash key of their own, and the second has the lower number. A server that frees the numbers of refused requests rejects
both bodies. A server that uses them up answers that the second number is already used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Iterator

from ..client.producer import Producer
from ..client.stream import Stream
from ..model.config import ProducerConfig
from ..model.errors import AttemptError, ProducerError, ResultFailedError
from ..model.sequence import SequenceKey
from ..runtime.loggers import get_logger
from .check import CHECK_SECONDS
from .failure_reason import blames, blames_rows
from .options import Target, lack_of_credentials

_log = get_logger("loghub.spark.write")
_failures = get_logger("loghub.send_task")

#: The producer's name, with which its threads' names begin.
_NAME = "exactlyOnce-question"

#: The retries of a request, and the longest backoff.
_RETRIES, _LONGEST_PAUSE_MS = 3, 1000

#: The hash key, the same for every job, so that the service stores only one.
_KEY = hashlib.sha256(b"exactlyOnce: is the number of a refused request free?").hexdigest()[:32]

#: Not a LogGroup: it has a field of an unknown wire type.
_NO_LOGS = b"\xff\xff\xff\xff"


def uses_up_numbers(target: Target, config: ProducerConfig, timeout: float = CHECK_SECONDS) -> bool:
    """Return True if a target uses up the number of a request that it refuses.

    Return False if the check is not possible: without credentials on the driver, or after an error, which is logged.

    :param config: the configuration of requests.
    :param timeout: the limit of each answer, seconds.
    """
    if lack_of_credentials(target) is not None:
        return False
    quick = dataclasses.replace(
        config,
        name=_NAME,
        retries=_RETRIES,
        max_retry_backoff_ms=_LONGEST_PAUSE_MS,
        quota_timeout_ms=0,
        drain_timeout_ms=0,
    )
    try:
        with _expected_refusals_hidden(), Producer(config=quick) as producer:
            producer._losses.mute()
            producer.put_project_config(target.project)
            stream = producer.stream(target.project.project, target.logstore, idempotent=SequenceKey(_KEY))
            _refused(stream, 2, timeout)
            return not _refused(stream, 1, timeout)
    except (ProducerError, TimeoutError) as error:
        _log.warning("cannot check whether %s uses up refused sequence numbers, continuing: %s", target, error)
        return False


def _refused(stream: Stream, number: int, timeout: float) -> bool:
    """Return True if the server refused the body, False if it knew the number.

    :raises ResultFailedError: the request failed otherwise.
    """
    try:
        stream._send_numbered(_NO_LOGS, 1, number).result(timeout)
    except ResultFailedError as error:
        if not blames_rows(error.result):
            raise
        stream.resume()
        return True
    return False


@contextlib.contextmanager
def _expected_refusals_hidden() -> Iterator[None]:
    """Hide the expected refusals from the log, where they would look like lost records."""
    _failures.addFilter(_is_unexpected)
    try:
        yield
    finally:
        _failures.removeFilter(_is_unexpected)


def _is_unexpected(record: logging.LogRecord) -> bool:
    ours = (record.threadName or "").startswith(_NAME)
    given = record.args if isinstance(record.args, tuple) else ()
    return not (
        ours and any(isinstance(error, AttemptError) and blames(error.code, error.http_status) for error in given)
    )
