"""Send numbered records through streams of a durable producer, and print each number once it is stored; to be killed.

Arguments: the channel's directory, ``idempotent`` or ``plain``, the first number, and how many to send (0: until
killed). With a count it waits until every event in the channel is delivered. With ``BLOCK_ACKS`` in the environment it
prints ``answered`` instead of acknowledging a delivered event to the channel, and waits there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Sequence

from producer import Producer, ProducerConfig, ProjectConfig, SendFuture
from producer.channels import FileChannel
from producer.durable.take_lease import Taking

STREAMS = 2
# The channel's directory, for the next program.
_AHEAD = 150


def _block(_taking: Taking, _sequences: Sequence[int]) -> None:
    print("answered", flush=True)
    threading.Event().wait()


def main() -> None:
    directory, mode, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if os.environ.get("BLOCK_ACKS"):
        Taking.acknowledge = _block  # type: ignore[method-assign]
    project = ProjectConfig(
        "my-project",
        endpoint=os.environ["LOGHUB_ENDPOINT"],
        access_key_id=os.environ["LOGHUB_ACCESS_KEY_ID"],
        access_key_secret=os.environ["LOGHUB_ACCESS_KEY_SECRET"],
    )
    config = ProducerConfig(
        linger_ms=100,
        batch_count_threshold=20,
        total_size_in_bytes=200_000,
        base_retry_backoff_ms=10,
        max_retry_backoff_ms=50,
        io_thread_count=2,
    )
    channel = FileChannel(directory, segment_size=32_768, checkpoint_interval=0.1, minimum_free_space=0, fsync="os")
    with Producer(project, config=config, channel=channel) as producer:
        streams = [
            producer.stream("my-project", mode, topic=str(n), idempotent=mode == "idempotent") for n in range(STREAMS)
        ]
        number, sent = first, deque[SendFuture]()
        while not count or number < first + count:
            sent.append(streams[number % STREAMS].send({"n": str(number)}))
            print(number, flush=True)
            if len(sent) > _AHEAD:
                sent.popleft().result(60)
            number += 1
        producer.flush(60)


if __name__ == "__main__":
    main()
