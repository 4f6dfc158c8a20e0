"""The settings of a ``producer ship`` job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.config import ProducerConfig, ProjectConfig
from ..spark.ack_timeout import defaults_of_task
from ..spark.options import Target
from .line_times import LineTimes

#: The default of ``ack_timeout``, seconds.
ACK_TIMEOUT = 600.0

#: The default Spark master: every core, and four attempts for each task as on a cluster (``local[*]`` makes only one).
LOCAL_MASTER = "local[*,4]"

#: Maximum size of a line before it is shipped in pieces, bytes. Bytes that are not UTF-8 grow by a factor of 5.4 in a
#: record (escaped text plus base64), and must still fit into the largest batch, 8 MiB.
MAX_LINE_BYTES = 1_500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipJob:
    """The target and the settings of a job.

    :ivar project: the project to write to, with the credentials.
    :ivar logstore: the logstore to write to.
    :ivar topic: the topic of the records.
    :ivar source: the source of the records; None for the address of the worker.
    :ivar parser: a name of :data:`~producer.ship.lines.parsers.PARSER_NAMES`.
    :ivar pattern: the regular expression of the parser ``regex``.
    :ivar delimiter: the ASCII character between values of the parser ``delimited``.
    :ivar columns: the names of these values; None to read them from the first line of each file.
    :ivar multiline_start: a regular expression that matches the first line of a log; None if each line is a log.
    :ivar exactly_once: True to store each line exactly once, even if the job is restarted with its checkpoint.
    :ivar file_offset: True to add the offset of its line in the file to each record.
    :ivar line_time: the form of the times in the lines; None for the time of sending, which also applies to lines
        without a time.
    :ivar encoding: the encoding of the files; empty for UTF-8.
    :ivar max_line_bytes: maximum size of a line or multi-line log before it is shipped in pieces, bytes.
    :ivar producer: options of the producer, as text.
    :ivar ack_timeout: maximum wait of a task for the next acknowledgement, seconds.
    """

    project: ProjectConfig
    logstore: str
    topic: str = ""
    source: str | None = None
    parser: str = "auto"
    pattern: str | None = None
    delimiter: str = ","
    columns: tuple[str, ...] | None = None
    multiline_start: str | None = None
    exactly_once: bool = False
    file_offset: bool = False
    line_time: LineTimes | None = None
    encoding: str = ""
    max_line_bytes: int = MAX_LINE_BYTES
    producer: Mapping[str, str] = field(default_factory=dict)
    ack_timeout: float = ACK_TIMEOUT

    @property
    def has_headers(self) -> bool:
        """True if the first line of each file names the columns."""
        return self.parser == "delimited" and self.columns is None

    @property
    def target(self) -> Target:
        """The logstore, with its project."""
        return Target(self.project, self.logstore)

    @property
    def config(self) -> ProducerConfig:
        """The validated options of the producer.

        :raises ConfigError: an option is invalid; the message names it.
        """
        return ProducerConfig.from_mapping({**defaults_of_task(self.producer, self.ack_timeout), **self.producer})
