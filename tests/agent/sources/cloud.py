"""S3 and SQS of moto, a proxy that breaks connections, and a source that reads them on a thread."""

from __future__ import annotations

import itertools
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3

from producer.agent.config.options import read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import Context, Outlet
from producer.agent.flow.channel import BatchChannel
from producer.agent.sources.s3 import S3Source
from producer.runtime.clock import Stop
from tests.support.remote_servers import ACCESS_KEY, SECRET_KEY, s3_server
from tests.support.waiting import Call, eventually

from ..doubles import file_channel, memory_channel, outlet_to, taken_batches

_KEYS = {"region_name": "us-east-1", "aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}


class Cloud:
    """S3 and SQS; each test makes buckets and queues of its own.

    :param url: the address of both.
    """

    _numbers = itertools.count()

    def __init__(self, url: str) -> None:
        self.url = url
        self.s3 = boto3.client("s3", endpoint_url=url, **_KEYS)
        self.sqs = boto3.client("sqs", endpoint_url=url, **_KEYS)

    def bucket(self) -> str:
        name = f"bucket-{next(self._numbers)}"
        self.s3.create_bucket(Bucket=name)
        return name

    def queue(self, *buckets: str) -> str:
        """Make a queue that gets the notifications of buckets; return its address."""
        name = f"queue-{next(self._numbers)}"
        url: str = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        to = [{"QueueArn": f"arn:aws:sqs:us-east-1:123456789012:{name}", "Events": ["s3:ObjectCreated:*"]}]
        for bucket in buckets:
            self.s3.put_bucket_notification_configuration(
                Bucket=bucket, NotificationConfiguration={"QueueConfigurations": to}
            )
        return url

    def put(self, bucket: str, key: str, data: bytes, **more: str) -> None:
        self.s3.put_object(Bucket=bucket, Key=key, Body=data, **more)

    def send(self, queue: str, body: object) -> None:
        self.sqs.send_message(QueueUrl=queue, MessageBody=body if isinstance(body, str) else json.dumps(body))

    def waiting(self, queue: str) -> tuple[int, int]:
        """Return the numbers of messages of a queue: visible, and in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])


@contextmanager
def cloud_server() -> Iterator[Cloud]:
    with s3_server() as url:
        yield Cloud(url)


def record(bucket: str, key: str, name: str = "ObjectCreated:Put", **more: object) -> dict[str, object]:
    return {"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key, **more}}}


class Reading:
    """An s3 source that a test starts, stops and kills, with a memory channel or a file channel."""

    def __init__(
        self, folder: Path, cloud: Cloud, *, outlet: Outlet | None = None, disk: bool = False, **options: Any
    ) -> None:
        self._state, self._given = folder / "state", outlet
        given = {"endpoint_url": cloud.url, "path_style": True, "region": "us-east-1", "wait": 1, "poll_delay": 0.01}
        del given["poll_delay" if "queue_url" in options else "wait"]
        keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        self.options = read_options(S3Source.Options, {**given, **keys, **options}, "sources.s")
        self.counters, self.stop = Counters(), Stop()
        self.channel: BatchChannel = (file_channel if disk else memory_channel)(self._state)
        self.outlet = self._outlet()
        self.run: Call | None = None

    def _outlet(self) -> Outlet:
        return self._given or outlet_to("t", self._state, {"c": self.channel})

    def start(self) -> Reading:
        self.stop = Stop()
        context = Context("a", "t", self._state / "t", self.counters)
        source = S3Source(self.options, context)
        self.run = Call(lambda: source.run(self.outlet, self.stop))
        return self

    def end(self) -> None:
        """Stop the source, and wait for its end."""
        run, self.run = self.run, None
        if run is not None:
            self.stop.set()
            run.result()

    def restart(self) -> Reading:
        self.end()
        self.outlet = self._outlet()
        return self.start()

    def __enter__(self) -> Reading:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.end()
        self.channel.close()

    def batches(self) -> list[EventBatch]:
        """Take the batches that the channel got since the last call, as delivered."""
        assert self.run is None or not self.run.done or self.run.result() is None
        return taken_batches(self.channel)

    def lines(self, count: int) -> list[bytes]:
        """Take so many bodies; fail if there are more or fewer."""
        found: list[bytes] = []

        def enough() -> bool:
            found.extend(body for batch in self.batches() for body in batch.bodies())
            return len(found) >= count

        eventually(enough, f"{count} lines")
        assert len(found) == count, found[:20]
        return found


class Proxy:
    """A TCP proxy of a server.

    :ivar cuts: for each next GET of an object, the bytes of the answer after which the connection breaks; None for all.
    :ivar ranges: the ``Range`` of each GET of an object.
    :ivar hook: called when a connection was cut.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = parts.hostname, parts.port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.cuts: list[int | None] = []
        self.ranges: list[str] = []
        self.hook = lambda: None
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._server.accept()[:1], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Serve one request."""
        with client, socket.create_connection(self._to) as server, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1 << 16)
            server.sendall(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            limit = None
            if re.match(rb"GET /[^/?]+/[^?]", head):
                found = re.search(rb"\r\nRange: *(\S+)", head)
                self.ranges.append(found[1].decode() if found else "")
                limit = self.cuts.pop(0) if self.cuts else None
            _copy(server, client, limit)
            if limit is not None:
                self.hook()
            client.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, to: socket.socket, limit: int | None = None) -> None:
    with suppress(OSError):
        while (limit is None or limit > 0) and (data := source.recv(1 << 14 if limit is None else min(limit, 1 << 14))):
            to.sendall(data)
            limit = None if limit is None else limit - len(data)
