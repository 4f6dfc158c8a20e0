"""Ship a file in a loop, as users of the official libraries write it: a dictionary for each line of text.

The way ``official`` is ``LogstoreWriter.send`` of ``aliyun-log-producer``, with settings and outcomes as in
:mod:`.official`. The way ``put_logs`` sends 1,000 lines per call with ``aliyun-log-python-sdk``, as in
    :mod:`.python_sdk`.

A job's shape is the path; with its option ``pattern`` a line's groups are fields beside its ``content``, as in
``producer ship``. Each way imports only its own library.
"""

import dataclasses
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..shapes import Log
from .protocol import Answer, Job, serve, timed


def _logs(job: Job) -> Iterator[Log]:
    pattern = job.options.get("pattern")
    match = re.compile(pattern).fullmatch if pattern else None
    with Path(job.shape).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            content = line.rstrip("\n")
            found = match(content) if match else None
            yield {"content": content, **found.groupdict()} if found else {"content": content}


def with_official(job: Job) -> Answer:
    """Send each line with a callback, and count the successful outcomes."""
    from aliyun_log_producer import EnqueueFullError, Producer

    from . import official

    outcomes: list[object] = []
    with Producer(official.config_of(dataclasses.replace(job, options={}))) as producer:
        writer = producer.writer("p", "bench")

        def run() -> int:
            count = 0
            for log in _logs(job):
                count += 1
                while True:
                    try:
                        writer.send(log, topic="t", source="s", on_delivery=outcomes.append)
                        break
                    except EnqueueFullError:
                        time.sleep(0.001)
            return official.finish(producer, outcomes, count)

        return timed(run)


def with_put_logs(job: Job) -> Answer:
    from aliyun.log import PutLogsRequest

    from . import python_sdk as sdk

    client = sdk.client_of(job.address)

    def run() -> int:
        logs, delivered = _logs(job), 0
        while items := [sdk.item_of(log) for log in islice(logs, sdk.LOGS_A_CALL)]:
            client.put_logs(PutLogsRequest("p", "bench", "t", "s", items))
            delivered += len(items)
        return delivered

    return timed(run)


if __name__ == "__main__":
    serve({"official": with_official, "put_logs": with_put_logs})
