"""The checked options of a write, from ``df.write.format("loghub").option(…)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ...model.config import ProducerConfig
from ...model.errors import ConfigError
from ..ack_timeout import defaults_of_task
from ..options import (
    ACK_TIMEOUT,
    CHUNK_BYTES,
    CHUNK_ROWS,
    READ_OPTIONS,
    TARGET_OPTIONS,
    WRITE_OPTIONS,
    Guarantee,
    OnFailure,
    Target,
    documented,
    producer_config,
    producer_option_names,
    target_of,
    values_of,
)

#: The batch size of ``atLeastOnce``: twice the producer's default, because rows come many at a time.
BATCH_BYTES = 1 << 20
_RUN_ID = re.compile(r"[\x20-\x7e]{1,256}")


#: The options that name a column, by the field of :class:`Columns`.
COLUMN_OPTIONS = {
    "time": "timeColumn",
    "topic": "topicColumn",
    "source": "sourceColumn",
    "shard_hash": "shardHashColumn",
    "contents": "contentsColumn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns with a special meaning, which are not fields of a row; None for no such column.

    :ivar time: the column of the row's time.
    :ivar topic: the column of its topic.
    :ivar source: the column of its source.
    :ivar shard_hash: the column of its shard hash.
    :ivar contents: the column of a map whose entries are fields.
    """

    time: str | None = None
    topic: str | None = None
    source: str | None = None
    shard_hash: str | None = None
    contents: str | None = None

    def as_arguments(self) -> dict[str, str | None]:
        """Return the arguments for ``Stream.send_arrow``."""
        return {f"{role}_column": getattr(self, role) for role in COLUMN_OPTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write.

    :ivar target: the logstore and its credentials.
    :ivar config: the producer's configuration.
    :ivar topic: the topic of rows without one of their own.
    :ivar source: the source of rows without one of their own; None for the worker's address.
    :ivar columns: the columns with a special meaning.
    :ivar row_labels: the columns whose values name a row in errors.
    :ivar on_failure: the handling of refused rows.
    :ivar dead_letter_path: the directory for refused rows; None for none.
    :ivar guarantee: the delivery guarantee.
    :ivar run_id: the name of the write for ``exactlyOnce``, or None.
    :ivar chunk_rows: the limit of a request's rows with ``exactlyOnce``.
    :ivar chunk_bytes: the limit of a request's bytes before compression with ``exactlyOnce``.
    :ivar ack_timeout: the longest wait of a task for the next acknowledgement, seconds.
    :ivar metrics_path: the file for metrics, or None.
    :ivar check_target: True to check the logstore before the job begins.
    """

    target: Target
    config: ProducerConfig
    topic: str = ""
    source: str | None = None
    columns: Columns = Columns()
    row_labels: tuple[str, ...] = ()
    on_failure: OnFailure = "fail"
    dead_letter_path: str | None = None
    guarantee: Guarantee = "atLeastOnce"
    run_id: str | None = None
    chunk_rows: int = CHUNK_ROWS
    chunk_bytes: int = CHUNK_BYTES
    ack_timeout: float = ACK_TIMEOUT
    metrics_path: str | None = None
    check_target: bool = True

    def __post_init__(self) -> None:
        if (self.on_failure == "deadletter") != (self.dead_letter_path is not None):
            raise ConfigError(
                "deadLetterPath", "must be given with onFailure=deadletter, and only then", self.dead_letter_path
            )
        if self.run_id is not None and not _RUN_ID.fullmatch(self.run_id):
            raise ConfigError("runId", "must be 1 to 256 printable ASCII characters", self.run_id)
        if self.run_id is not None and self.guarantee != "exactlyOnce":
            raise ConfigError("runId", "needs deliveryGuarantee=exactlyOnce", self.run_id)
        most = self.config.total_size_in_bytes // 2
        if self.guarantee == "exactlyOnce" and self.chunk_bytes > most:
            raise ConfigError("chunkBytes", f"must be at most half of total_size_in_bytes, {most}", self.chunk_bytes)

    @classmethod
    def from_mapping(cls, given: Mapping[str, str]) -> Self:
        """Build and check the options.

        :param given: the options from Spark.
        :raises ConfigError: an option is unknown, missing or invalid; the error names it.
        """
        options = documented(given, (*TARGET_OPTIONS, *WRITE_OPTIONS, *producer_option_names()), others=READ_OPTIONS)
        chosen = values_of(WRITE_OPTIONS, options)
        ack_timeout = chosen["ackTimeout"]
        defaults = {"batch_size_threshold_in_bytes": BATCH_BYTES} | defaults_of_task(options, ack_timeout)
        columns = {name: chosen[option] for name, option in COLUMN_OPTIONS.items()}
        return cls(
            target=target_of(options),
            config=producer_config(options, **defaults),
            topic=chosen["topic"],
            source=chosen["source"],
            columns=Columns(**columns),
            row_labels=tuple(name.strip() for name in chosen["rowLabels"].split(",") if name.strip()),
            on_failure=chosen["onFailure"],
            dead_letter_path=chosen["deadLetterPath"],
            guarantee=chosen["deliveryGuarantee"],
            run_id=chosen["runId"],
            chunk_rows=chosen["chunkRows"],
            chunk_bytes=chosen["chunkBytes"],
            ack_timeout=ack_timeout,
            metrics_path=chosen["metricsPath"],
            check_target=chosen["checkTarget"],
        )
