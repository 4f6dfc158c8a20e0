"""Observe the producer: its log, the attempts of a failed record, and its statistics.

Failures are logged at WARNING and ERROR by the loggers under ``producer``, retries at DEBUG. No secret is ever logged.
"""

from __future__ import annotations

import logging
import os

from loghub import EnvironmentCredentials, Producer, ProducerConfig, ProjectConfig, ResultFailedError

log = logging.getLogger("example")


def main() -> None:
    """Send a record to the server, and one to a port without a listener."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("loghub").setLevel(logging.DEBUG)
    known = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    dead = ProjectConfig("dead-project", endpoint="http://127.0.0.1:9", credentials=EnvironmentCredentials())
    config = ProducerConfig(retries=2, base_retry_backoff_ms=10, linger_ms=100)
    with Producer(known, dead, config=config) as producer:
        for project in ("my-project", "dead-project"):
            future = producer.send(project, "app-log", {"message": "hello"})
            try:
                result = future.result(timeout=30)
            except ResultFailedError as error:
                result = error.result
            for attempt in result.attempts:
                log.info(
                    "%s: %s in %.1f ms, request %s %s",
                    project,
                    attempt.http_status,
                    attempt.duration_ms,
                    attempt.request_id or "none",
                    attempt.error_code,
                )
        stats = producer.stats()
    log.info(
        "accepted %d, delivered %d, failed %d, retried %d", stats.accepted, stats.delivered, stats.failed, stats.retried
    )


if __name__ == "__main__":
    main()
