"""What a refused write does to its sequence number: whoever stores exactly once stands on that, and the protocol does
not say.

Where a refused number is used up, nobody can tell later whether a number that the server knows was stored or refused:
what a task sends again would be taken for written, and be lost. So the target is asked before the job: two requests
that it must refuse, since their bodies are no logs, under a key of their own, the second with the lower number. A
server that frees the numbers of refused requests finds fault with both bodies. One that does not finds the second
number used.
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
from .options import Target, knows_credentials

_log = get_logger("loghub.spark.write")
_failures = get_logger("loghub.send_task")

#: Whose threads they are.
_NAME = "exactlyOnce-question"

#: How often a question is asked again, and the longest pause before.
_RETRIES, _LONGEST_PAUSE_MS = 3, 1000

#: The same for every job, so that the service has but one to remember: what was answered once is answered again.
_KEY = hashlib.sha256(b"exactlyOnce: is the number of a refused request free?").hexdigest()[:32]

#: No LogGroup: a field of a wire type that there is not.
_NO_LOGS = b"\xff\xff\xff\xff"


def uses_up_numbers(target: Target, config: ProducerConfig, timeout: float = CHECK_SECONDS) -> bool:
    """Ask a target whether it uses up the number of a request that it refuses.

    What cannot be asked (no answer, a key that may not write, or that only the executors know) is no: it is logged, and
    the tasks will meet it.

    :param config: how requests travel.
    :param timeout: seconds that an answer may take.
    """
    if not knows_credentials(target):
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
        with _refusals_are_no_news(), Producer(config=quick) as producer:
            producer._losses.mute()
            producer.put_project_config(target.project)
            stream = producer.stream(target.project.project, target.logstore, idempotent=SequenceKey(_KEY))
            _refused(stream, 2, timeout)
            return not _refused(stream, 1, timeout)
    except (ProducerError, TimeoutError) as error:
        _log.warning("could not check what %s does with refused sequence numbers, going on: %s", target, error)
        return False


def _refused(stream: Stream, number: int, timeout: float) -> bool:
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


@contextlib.contextmanager
def _refusals_are_no_news() -> Iterator[None]:
    """Keep out of the log that the bodies were refused, as they should be: it reads as if records were lost."""
    _failures.addFilter(_is_news)
    try:
        yield
    finally:
        _failures.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    ours = (record.threadName or "").startswith(_NAME)
    given = record.args if isinstance(record.args, tuple) else ()
    return not (
        ours and any(isinstance(error, AttemptError) and blames(error.code, error.http_status) for error in given)
    )
