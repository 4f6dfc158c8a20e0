"""Deliver all logs as the last step of an ASGI server's lifespan.

::

    app = FastAPI()
    app.add_middleware(FlushAtShutdown)

or around any application, such as Django's: ``application = FlushAtShutdown(get_asgi_application())``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..client.producer import Producer
from ..model.errors import FlushTimeoutError
from ..runtime.loggers import get_logger
from .figures import check_producer
from .outlet import flush_all

__all__ = ["FlushAtShutdown"]

_log = get_logger("loghub.integrations")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class FlushAtShutdown:
    """Middleware that flushes after the application has shut down, before the server is notified.

    It flushes every handler, sink, processor and exporter of ``loghub.integrations`` in the process, and the given
    producers. A flush that exceeds ``timeout`` is logged, and the server continues.

    :param app: the application, which need not support the lifespan protocol.
    :param producers: the producers that the application uses itself.
    :param timeout: the limit of all flushes together, seconds.
    :raises ConfigError: an argument is not a producer.
    """

    def __init__(self, app: App, *producers: Producer, timeout: float = 10.0) -> None:
        for producer in producers:
            check_producer(producer)
        self._app, self._producers, self._timeout = app, producers, timeout

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Run the application."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        answered = False

        async def answer(message: Message) -> None:
            nonlocal answered
            answered = True
            if message["type"].startswith("lifespan.shutdown."):
                await self.flush()
            await send(message)

        received: list[Message] = []

        async def ask() -> Message:
            received.append(await receive())
            return received[-1]

        try:
            await self._app(scope, ask, answer)
        except Exception:
            if answered:
                raise
        if not answered:
            await self._live_without_app(received, receive, answer)

    @staticmethod
    async def _live_without_app(received: list[Message], receive: Receive, answer: Send) -> None:
        """Answer the server in place of an application that does not, to be notified of the shutdown."""
        if not received:
            await receive()
        await answer({"type": "lifespan.startup.complete"})
        await receive()
        await answer({"type": "lifespan.shutdown.complete"})

    async def flush(self) -> None:
        """Wait for delivery without blocking the event loop, at most ``timeout``."""
        await asyncio.to_thread(self._flush)

    def _flush(self) -> None:
        end = time.monotonic() + self._timeout
        for producer in self._producers:
            try:
                producer.flush(max(0.0, end - time.monotonic()))
            except FlushTimeoutError as error:
                _log.warning("%s: %s", producer.name, error)
        flush_all(max(0.0, end - time.monotonic()))
