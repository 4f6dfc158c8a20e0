"""Objects in S3 with killed agents: by listing, and by the notifications of a queue."""

import gzip
import random
from pathlib import Path

import pytest

from tests.support.remote_servers import ACCESS_KEY, SECRET_KEY

from .killing import TIMEOUT, Writing, deliver_with_kills, numbered, numbers_in, seed_for
from .sources.cloud import Cloud, cloud_server

_CONFIG = """
[agent]
name = "a"
state = "{folder}/state"

[sources.listed]
type = "s3"
bucket = "{listed}"
poll_delay = 0.02
look_back = 5
{common}

[sources.queued]
type = "s3"
queue_url = "{queue}"
wait = 1
visibility_timeout = 10
{common}

[channels.disk]
type = "file"
minimum_free_space = 0

[sinks.files]
type = "file_roll"
channel = "disk"
directory = "{folder}/out"
roll_interval = 0.2
"""
_COMMON = f"""
endpoint_url = "{{url}}"
path_style = true
region = "us-east-1"
access_key_id = "{ACCESS_KEY}"
secret_access_key = "{SECRET_KEY}"
channels = ["disk"]
"""
pytestmark = pytest.mark.timeout(TIMEOUT)


class Objects(Writing):
    """Objects of two buckets, in turn; some are compressed, some large."""

    def __init__(self, cloud: Cloud, buckets: tuple[str, str], seed: int) -> None:
        super().__init__(seed)
        self._cloud, self._buckets = cloud, buckets
        self.objects = 0

    def _pause(self) -> float:
        return self._random.uniform(0, 0.1)

    def _write(self, numbers: range) -> None:
        data = b"".join(map(numbered, numbers))
        if self.objects % 3 == 0:
            data = gzip.compress(data)
        self._cloud.put(self._buckets[self.objects % 2], f"{self.objects:06d}", data)
        self.objects += 1


def test_each_line_of_objects_is_in_a_file(tmp_path: Path) -> None:
    """After kill -9 of s3 with a bucket and with a queue, file channel and file_roll, no line is lost or duplicated."""
    seed = seed_for(7)
    with cloud_server() as cloud:
        listed, notified = cloud.bucket(), cloud.bucket()
        config, queue = tmp_path / "a.toml", cloud.queue(notified)
        values = {"folder": tmp_path, "listed": listed, "queue": queue, "common": _COMMON.format(url=cloud.url)}
        config.write_text(_CONFIG.format(**values))
        with Objects(cloud, (listed, notified), seed) as objects:
            deliver_with_kills(
                config,
                objects,
                lambda: numbers_in(tmp_path / "out"),
                random.Random(seed),
                lambda: cloud.waiting(queue) == (0, 0),
            )
