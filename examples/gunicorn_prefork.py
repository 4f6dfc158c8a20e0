"""gunicorn with workers that it forks: ``gunicorn --preload --workers 2 gunicorn_prefork:app``.

The producer is made when the module is imported: with ``--preload`` that is in the master, before the fork. A copy of
it in a worker is a producer of its own, which starts empty. A worker that ends in order, on SIGTERM or at
``max_requests``, delivers what it has accepted; give it the time: ``--graceful-timeout`` longer than
``drain_timeout_ms``. A worker that gunicorn kills, after ``--timeout``, loses what it had not sent; with
``channel=ProcessFileChannel(directory)`` that is on the disk, and another worker delivers it: see ``durable.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from loghub import EnvironmentCredentials, Producer, ProjectConfig

project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
producer = Producer(project)
# Also a record of the master is sent once, by the master.
producer.send("my-project", "app-log", {"event": "loaded", "pid": os.getpid()})


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Log each request."""
    producer.send("my-project", "app-log", {"event": "request", "path": environ["PATH_INFO"], "pid": os.getpid()})
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()}\n".encode()]
