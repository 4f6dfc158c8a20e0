"""The options of ``s3``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urlsplit

from ....model.errors import ConfigError
from ....model.options import check_unset, option
from ....wire.decompressing import WINDOW_BYTES
from ..reading.cutting import BLOCK_BYTES, Rules
from ..reading.line_options import LineOptions
from ..reading.name_filter import NameFilter

#: The headers that an event may have.
HEADERS = ("bucket", "key", "etag", "size", "last_modified")
#: Bytes of boto3's descriptions of the services.
_CLIENT_BYTES = 48 << 20
#: Copies of a block in memory: compressed, plain, as text, in a batch.
_COPIES = 4
_OF_BUCKET, _OF_QUEUE = ("look_back", "start_after", "poll_delay"), ("visibility_timeout", "wait")
_OF_SQS = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options(LineOptions):
    """Queue or bucket, credentials, and format of the objects."""

    #: Hints for names of other agents.
    foreign: ClassVar[Mapping[str, str]] = {
        "sqs": "give the queue's address as queue_url",
        "bucket_arn": "give the bucket's name as bucket",
        "bucket_list_prefix": "prefix",
        "bucket_list_interval": "poll_delay",
        "number_of_workers": "workers",
        "client_concurrency": "workers",
        "s3_bucket": "bucket",
        "s3_endpoint": "endpoint_url",
        "aws_key_id": "access_key_id",
        "aws_sec_key": "secret_access_key",
        "access_key_secret": "secret_access_key",
        "credential_profile_name": "profile",
        "force_path_style": "path_style",
    }

    queue_url: str | None = option(None, doc="SQS queue with the bucket's notifications, also by SNS or EventBridge")
    bucket: str | None = option(None, doc="bucket that is listed, instead of a queue; one agent for each bucket")
    prefix: str = option("", doc="prefix of the keys to read")
    include_pattern: str = option("", doc="regular expression that is searched for in keys to read; empty for all")
    ignore_pattern: str = option("^$", doc="regular expression that is searched for in keys not to read")
    workers: int = option(4, least=1, most=100, doc="number of objects that are read at once")
    visibility_timeout: int = option(
        300,
        least=10,
        most=43_200,
        doc="queue: seconds after which a message appears again if it failed, or if its agent died",
    )
    wait: int = option(5, least=1, most=20, doc="queue: seconds of a long poll; a stop takes as long")
    poll_delay: float = option(60.0, least=0.01, doc="bucket: seconds between two listings")
    look_back: int = option(
        1000,
        least=1,
        most=100_000,
        doc="bucket: number of last keys that each listing repeats; a new key that sorts before them is not seen",
    )
    start_after: str | None = option(None, doc="bucket: key after which the first start begins")
    headers: tuple[str, ...] = option(HEADERS, doc=f"headers of each event: {', '.join(HEADERS)}")
    region: str | None = option(None, doc="region; empty for that of the queue's address, the profile, or AWS_REGION")
    endpoint_url: str | None = option(None, doc="address of a compatible store, such as https://minio:9000")
    path_style: bool = option(False, doc="put the bucket into the path of requests, not into the host name")
    access_key_id: str | None = option(None, doc="key's ID; empty for AWS's own variables, files and roles")
    secret_access_key: str | None = option(None, secret=True, doc="secret of the key")
    session_token: str | None = option(None, secret=True, doc="token of a temporary key")
    profile: str | None = option(None, doc="profile of AWS's configuration files")

    def __post_init__(self) -> None:
        if (self.queue_url is None) == (self.bucket is None):
            raise ConfigError("bucket", "or queue_url must be given, and not both", self.bucket)
        if self.queue_url:
            check_unset(self, _OF_BUCKET, "is used only with bucket")
        else:
            check_unset(self, _OF_QUEUE, "is used only with queue_url")
        for name in ("queue_url", "endpoint_url"):
            _check_url(name, getattr(self, name))
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ConfigError("access_key_id", "and secret_access_key are given both or not at all", self.access_key_id)
        for header in self.headers:
            if header not in HEADERS:
                raise ConfigError("headers", f"must be of {', '.join(HEADERS)}", header)
        self.keys()
        self.check_lines()

    def holds(self) -> int:
        """Return the maximum bytes held: for each worker a window of decompression, and copies of a block."""
        return _CLIENT_BYTES + self.workers * (WINDOW_BYTES + _COPIES * max(BLOCK_BYTES, self.max_line_bytes))

    def rules(self) -> Rules:
        """Return the rules for the lines of an object."""
        logs, most = self.logs(), self.max_line_bytes
        return Rules(logs, most, 0.0, 0.0, encoding=self.encoding, delimiter=self.delimiter, final=True)

    def keys(self) -> NameFilter:
        """Return the filter of objects' keys.

        :raises ConfigError: a pattern is not a regular expression.
        """
        return NameFilter(self.include_pattern, self.ignore_pattern, "the object is not read")

    @property
    def queues_endpoint(self) -> str | None:
        """The address of SQS, without the queue."""
        parts = urlsplit(self.queue_url or "")
        return f"{parts.scheme}://{parts.netloc}" if parts.netloc else None

    @property
    def queues_region(self) -> str | None:
        """The region in the queue's address; None if it has none."""
        found = _OF_SQS.search(self.queue_url or "")
        return found and found[1]


def _check_url(name: str, text: str | None) -> None:
    """:raises ConfigError: the text is not a URL, or has a user, whose password messages would show."""
    if text is None:
        return
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ConfigError(name, "must be http:// or https:// and a host, without a user", text)
