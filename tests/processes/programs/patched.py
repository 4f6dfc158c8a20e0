"""Send under monkey patching and print the outcome: ``patched.py LIBRARY WHEN DIRECTORY HTTPS DRIPPING CA``.

``WHEN`` is ``first``, or ``late`` to patch after the import of the package.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any

library, when, directory, https, dripping, authority = sys.argv[1:]


def patch() -> None:
    """Patch the blocking parts of the standard library."""
    warnings.simplefilter("ignore")
    if library == "gevent":
        importlib.import_module("gevent.monkey").patch_all(ssl=when == "first")
    else:
        importlib.import_module("eventlet").monkey_patch()


if when == "first":
    patch()

from producer import FileChannel, HttpConfig, Producer, ProducerConfig, ProjectConfig

if when == "late":
    patch()

import secrets
import socket
import tempfile
import threading
import time

keys = {
    "access_key_id": os.environ["LOGHUB_ACCESS_KEY_ID"],
    "access_key_secret": os.environ["LOGHUB_ACCESS_KEY_SECRET"],
}


class SlowKeys:
    """A key provider with a slow server; another greenlet runs during the request."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def current_key_id(self) -> str:
        return "one"

    def get_key(self, key_id: str) -> bytes:
        time.sleep(0.01)
        return self._key


def send(way: str, endpoint: str, channel: FileChannel | None = None, size: int = 0, **http: Any) -> None:
    """Send on several threads, wait in each way, close, and print the number of arrived records."""
    config = ProducerConfig(linger_ms=20, retries=1, http=HttpConfig(**http))
    with Producer(ProjectConfig("my-project", endpoint=endpoint, **keys), config=config, channel=channel) as producer:
        outcomes = list[BaseException | None]()

        def send_one(number: int) -> None:
            future = producer.send("my-project", "app-log", {"n": f"{way}-{number}", "pad": " " * size})
            outcomes.append(future.exception(timeout=20))

        threads = [threading.Thread(target=send_one, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        producer.flush(timeout=20)
        for thread in threads:
            thread.join()
    print(f"{way}={outcomes.count(None)}/{len(outcomes)}")


send("plain", os.environ["LOGHUB_ENDPOINT"])
send("channel", os.environ["LOGHUB_ENDPOINT"], FileChannel(directory))
with tempfile.TemporaryDirectory() as encrypted:  # each log begins a segment and requests the key
    channel = FileChannel(encrypted, segment_size=64 * 1024, encryption=SlowKeys())
    send("encrypted", os.environ["LOGHUB_ENDPOINT"], channel, size=60 * 1024)
if when == "first":  # gevent's TLS works only if it is patched before ssl is imported
    send("tls", https, ca_bundle=authority)
    send("dripping", dripping, ca_bundle=authority, attempt_timeout_ms=300)
with socket.create_server(("127.0.0.1", 0)) as silent:
    send("silent", f"http://127.0.0.1:{silent.getsockname()[1]}", attempt_timeout_ms=200)
