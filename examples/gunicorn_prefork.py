"""Log from gunicorn's forked workers: ``gunicorn --preload --workers 2 gunicorn_prefork:app``.

The producer is made when the module is imported: with ``--preload`` in the master, before the fork. Its copy in a
worker is an independent producer, which starts empty.

A worker that shuts down gracefully, on SIGTERM or at ``max_requests``, delivers the records it has accepted. Set
``--graceful-timeout`` to more than ``drain_timeout_ms``. A worker that gunicorn kills, after ``--timeout``, loses its
unsent records. With ``channel=ProcessFileChannel(directory)`` they are on the disk, and another worker delivers them:
see ``durable.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from loghub import EnvironmentCredentials, Producer, ProjectConfig

project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
producer = Producer(project)
# A record of the master is sent once as well, by the master.
producer.send("my-project", "app-log", {"event": "loaded", "pid": os.getpid()})


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Log each request."""
    producer.send("my-project", "app-log", {"event": "request", "path": environ["PATH_INFO"], "pid": os.getpid()})
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()}\n".encode()]
