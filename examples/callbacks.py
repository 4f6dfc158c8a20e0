"""Use callbacks to learn the outcome of each delivery without waiting for it.

They run on threads of the producer, successes on one and failures on another. Keep them short, and do not call
``flush`` or wait for another future in them. The result of a failed record lists its attempts.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

from loghub import EnvironmentCredentials, Producer, ProjectConfig, Result

delivered: Counter[str] = Counter()
undelivered: list[dict[str, str]] = []


def done(log: dict[str, str], result: Result) -> None:
    """Count a delivered log; keep a failed one, to write it elsewhere."""
    if result.successful:
        delivered[log["level"]] += 1
    else:
        undelivered.append(log)
        print(f"{log}: {result.error_code}, attempts: {result.attempt_count}: {result.error_message}")


def main() -> None:
    """Send five logs, one of them to a project with an invalid access key."""
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    other = ProjectConfig(
        "other-project", endpoint=os.environ["LOGHUB_ENDPOINT"], access_key_id="nobody", access_key_secret="none"
    )
    with Producer(project, other) as producer:
        for level in ("INFO", "INFO", "WARNING", "ERROR"):
            log = {"level": level, "message": "hello"}
            producer.send("my-project", "app-log", log, callback=partial(done, log))
        log = {"level": "INFO", "message": "this access key is unknown"}
        producer.send("other-project", "app-log", log, callback=partial(done, log))
    # The with block calls close, which waits for all callbacks.
    print(f"delivered: {dict(delivered)}, undelivered: {len(undelivered)}")


if __name__ == "__main__":
    main()
