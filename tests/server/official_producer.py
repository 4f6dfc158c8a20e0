"""Run the official producer (Rust core) as a program, with settings on stdin and outcomes on stdout.

The input is ``{"access_key_id", "access_key_secret", "compression", "logs"}``.
"""

import json
import sys

import aliyun_log_producer


def main() -> None:
    """Send the logs, close, and print None or an error for each."""
    wanted = json.load(sys.stdin)
    config = aliyun_log_producer.ProducerConfig(
        endpoint="http://loghub.test",
        access_key_id=wanted["access_key_id"],
        access_key_secret=wanted["access_key_secret"],
        compression=wanted["compression"],
        linger=0.05,
    )
    outcomes: list[str | None] = []
    with aliyun_log_producer.Producer(config) as producer:
        writer = producer.writer("my-project", "app-log")
        for log in wanted["logs"]:
            writer.send(
                log,
                topic="rust",
                on_delivery=lambda error: outcomes.append(error and f"{error.error_code}: {error.message}"),
            )
        producer.flush()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
