"""Send from asyncio: each delivery can be awaited, and nothing blocks the event loop.

``asend`` waits for memory on a thread and returns a future, which is awaited for the delivery. Cancelling the waiting
task does not recall the record.
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
    """Send one log and wait for its delivery."""
    future = await stream.asend({"n": number})
    return await future


async def main() -> None:
    """Send a hundred logs concurrently, and one to a project with an invalid access key."""
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
