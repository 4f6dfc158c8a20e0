"""asyncio: what is sent can be awaited, and nothing blocks the event loop.

``asend`` waits for memory on a thread; the future that it gives is awaited for the delivery. Cancelling the one who
waits does not recall the record.
"""

from __future__ import annotations

import asyncio
import os

from loghub import (
    EnvironmentCredentials,
    Producer,
    ProducerConfig,
    ProjectConfig,
    Result,
    ResultFailedError,
    Stream,
)


async def send(stream: Stream, number: int) -> Result:
    """Send one log, and wait for its delivery."""
    future = await stream.asend({"n": number})
    return await future


async def main() -> None:
    """Send a hundred logs at the same time; one more goes to a project whose access key nobody knows."""
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    other = ProjectConfig(
        "other-project", endpoint=os.environ["LOGHUB_ENDPOINT"], access_key_id="nobody", access_key_secret="none"
    )
    async with Producer(project, other, config=ProducerConfig(linger_ms=100)) as producer:
        stream = producer.stream("my-project", "app-log")
        results = await asyncio.gather(*(send(stream, number) for number in range(100)))
        print(f"delivered: {sum(result.successful for result in results)}")
        try:
            await send(producer.stream("other-project", "app-log"), 0)
        except ResultFailedError as error:
            print(f"failed: {error.result.error_code}")


if __name__ == "__main__":
    asyncio.run(main())
