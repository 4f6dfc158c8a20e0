"""Run one task of a write: send its rows, wait for acknowledgements, and count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from ...client.producer import Producer
from ...model.credentials import EnvironmentCredentials
from ...model.errors import ConfigError
from ...runtime.loggers import get_logger
from ...text.plural import counted
from ..errors import DeliveryFailedError
from ..executor import leased_producer
from .at_least_once import AtLeastOnce
from .exactly_once import ExactlyOnce
from .metrics import WriteMetrics
from .options import WriteOptions
from .part import Part, part_of_task
from .refusals import Refusals

if TYPE_CHECKING:
    from .dead_letter_files import DeadLetterFile

_log = get_logger("loghub.spark.write")


def write_rows(batches: Iterable[pa.RecordBatch], options: WriteOptions, run: str | None) -> WriteMetrics:
    """Send the rows of the running task, and wait until each is acknowledged, or handled as refused.

    :param batches: the rows.
    :param options: the options of the write.
    :param run: the name of the write; None for that of the streaming query.
    :raises DeliveryFailedError: rows were not acknowledged, or were refused with ``onFailure=fail``.
    """
    check_credentials(options)
    part = part_of_task(options.run_id or run)
    letters = _letters_of(part, options)
    refusals = Refusals(options, letters, part.number)
    metrics = refusals.metrics
    try:
        with leased_producer(options.target.project, config=options.config) as producer:
            waited = producer.stats().memory_wait_seconds
            _send(batches, producer, options, part, refusals)
            metrics.memory_wait_ms = round(1000 * (producer.stats().memory_wait_seconds - waited))
    except BaseException:
        if letters is not None:
            letters.discard()
        raise
    if letters is not None:
        letters.finish()
    if metrics.already_written:
        _log.warning(
            "partition %d: %d of %s were already stored in %s, by an earlier attempt or a run with the same name",
            part.number,
            metrics.already_written,
            counted(metrics.rows, "row"),
            options.target,
        )
    return metrics


def _letters_of(part: Part, options: WriteOptions) -> DeadLetterFile | None:
    if options.dead_letter_path is None:
        return None
    from .dead_letter_files import DeadLetterFile  # Parquet is large, and few writes need it

    return DeadLetterFile(options.dead_letter_path, part.file_name)


def check_credentials(options: WriteOptions) -> None:
    """Check before the first row that this worker has credentials: no retry would help.

    :raises DeliveryFailedError: the environment has no access key.
    """
    provider = options.target.project.credentials
    if isinstance(provider, EnvironmentCredentials):
        try:
            provider.get_credentials()
        except ConfigError as error:
            raise DeliveryFailedError(
                f"no credentials for {options.target}: {error}. Set it on the executors "
                "(spark.executorEnv.LOGHUB_ACCESS_KEY_ID and …_SECRET), or give the options accessKeyId and "
                "accessKeySecret, credentials, or credentialsProvider"
            ) from error


def _send(
    batches: Iterable[pa.RecordBatch], producer: Producer, options: WriteOptions, part: Part, refusals: Refusals
) -> None:
    rows: AtLeastOnce | ExactlyOnce
    if options.guarantee == "exactlyOnce":
        rows = ExactlyOnce(producer, options, refusals, part)
    else:
        rows = AtLeastOnce(producer, options, refusals)
    for batch in batches:
        rows.write(batch)
    rows.finish()
