"""What ``producer ship`` was asked to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.config import ProducerConfig, ProjectConfig
from ..spark.ack_timeout import defaults_of_task
from ..spark.options import Target
from .line_times import LineTimes

#: How long a task waits for the next acknowledgement, seconds.
ACK_TIMEOUT = 600.0

#: The Spark master if none is named: every core, and as many attempts for a task as on a cluster (``local[*]`` alone
#: gives it one).
LOCAL_MASTER = "local[*,4]"

#: A longer line is shipped in pieces of this size. A piece of bytes that are not UTF-8 grows by 5.4 as a record
#: (escaped, and in base64 beside it), and must still fit into the largest batch, 8 MiB.
MAX_LINE_BYTES = 1_500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShipJob:
    """Where to, and how.

    :ivar project: where the records go, and who signs for them.
    :ivar logstore: the logstore.
    :ivar topic: the records' topic.
    :ivar source: the records' source; None is the worker's address.
    :ivar parser: a name of :data:`~producer.ship.lines.parsers.PARSER_NAMES`.
    :ivar pattern: the regular expression of the parser ``regex``.
    :ivar delimiter: between the values of the parser ``delimited``: one ASCII character.
    :ivar columns: the names of those values; None if the first line of each file tells them.
    :ivar multiline_start: what the first line of a log matches, a regular expression; None if each line is a log.
    :ivar exactly_once: whether a job that is started again with its checkpoint stores each line once.
    :ivar file_offset: whether each record tells where in the file its line begins.
    :ivar line_time: how lines tell the time that their records have; None, and a line that tells none: that of sending.
    :ivar encoding: of the files, if it is another than UTF-8; else empty.
    :ivar max_line_bytes: longer lines, or logs of several lines, are shipped in pieces.
    :ivar producer: options of the producer, as text.
    :ivar ack_timeout: how long a task waits for the next acknowledgement, seconds.
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
        """Whether the first line of each file names the columns."""
        return self.parser == "delimited" and self.columns is None

    @property
    def target(self) -> Target:
        """The logstore."""
        return Target(self.project, self.logstore)

    @property
    def config(self) -> ProducerConfig:
        """The producer's options, checked.

        :raises ConfigError: names the option.
        """
        return ProducerConfig.from_mapping({**defaults_of_task(self.producer, self.ack_timeout), **self.producer})
