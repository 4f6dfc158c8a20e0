"""Run the mock cluster that librdkafka has for its own tests: print its address, then wait.

It keeps the last few megabytes of a partition and has no disk, so it answers sooner than a real broker.
"""

import sys

from confluent_kafka.admin import AdminClient


def main() -> None:
    """Serve until stdin ends or the process is killed."""
    admin = AdminClient({"test.mock.num.brokers": 1})
    brokers = admin.list_topics(timeout=10).brokers.values()
    print(*(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
