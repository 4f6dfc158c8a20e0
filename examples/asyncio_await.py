"""asyncio: the future of a send can be awaited; cancelling the one who waits does not recall the record.

``send`` itself blocks when the memory is full. On an event loop that must not happen, so ``max_block_ms=0`` makes it
raise ``SendTimeoutError`` instead, and the coroutine waits in its own way.
"""

from __future__ import annotations

import asyncio
import os

from producer import (
    EnvironmentCredentials,
    Producer,
    ProducerConfig,
    ProjectConfig,
    Result,
    ResultFailedError,
    SendTimeoutError,
    Stream,
)


async def send(stream: Stream, number: int) -> Result:
    """Send one log and wait for its delivery; without memory, try again a little later."""
    while True:
        try:
            return await stream.send({"n": number})
        except SendTimeoutError:
            await asyncio.sleep(0.1)


async def main() -> None:
    """Send a hundred logs at the same time; one more goes to a project whose access key nobody knows."""
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    other = ProjectConfig(
        "other-project", endpoint=os.environ["LOGHUB_ENDPOINT"], access_key_id="nobody", access_key_secret="none"
    )
    producer = Producer(project, other, config=ProducerConfig(max_block_ms=0, linger_ms=100))
    try:
        stream = producer.stream("my-project", "app-log")
        results = await asyncio.gather(*(send(stream, number) for number in range(100)))
        print(f"delivered: {sum(result.successful for result in results)}")
        try:
            await send(producer.stream("other-project", "app-log"), 0)
        except ResultFailedError as error:
            print(f"failed: {error.result.error_code}")
    finally:
        await asyncio.to_thread(producer.close, 10)  # close waits: not on the event loop


if __name__ == "__main__":
    asyncio.run(main())
