"""What ``producer ship`` was asked to do, and how its writing half says that to ``format("loghub")``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..config import ProjectConfig
from ..spark.writing.options import ACK_TIMEOUT
from .lines.columns import FOUND_FIELDS, LABELS

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
    :ivar max_line_bytes: longer lines are shipped in pieces.
    :ivar producer: options of the producer, as text.
    :ivar ack_timeout: how long a task waits for an acknowledgement, seconds.
    """

    project: ProjectConfig
    logstore: str
    topic: str = ""
    source: str | None = None
    parser: str = "auto"
    pattern: str | None = None
    max_line_bytes: int = MAX_LINE_BYTES
    producer: Mapping[str, str] = field(default_factory=dict)
    ack_timeout: float = ACK_TIMEOUT

    def write_options(self, **more: str) -> dict[str, str]:
        """The options of the write.

        :param more: options that the job does not know.
        """
        credentials = self.project.credentials.get_credentials()
        options = {
            **self.producer,
            "endpoint": self.project.endpoint,
            "project": self.project.project,
            "logstore": self.logstore,
            "accessKeyId": credentials.access_key_id,
            "accessKeySecret": credentials.access_key_secret,
            "securityToken": credentials.security_token,
            "topic": self.topic,
            "source": self.source,
            "contentsColumn": FOUND_FIELDS,
            "rowLabels": ",".join(LABELS),
            "ackTimeout": str(self.ack_timeout),
            **more,
        }
        return {name: value for name, value in options.items() if value is not None}
