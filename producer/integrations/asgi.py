"""Deliver all logs as the last step of an ASGI server's lifespan.

``loghub_lifespan`` also makes the application's own producer, for FastAPI and Starlette::

    app = FastAPI(lifespan=loghub_lifespan(lambda: Producer(project)))

``FlushAtShutdown`` goes around any application, such as Django's::

    application = FlushAtShutdown(get_asgi_application())
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from ..client.at_exit import flush_all
from ..client.producer import Producer
from ..model.errors import CloseTimeoutError, ConfigError, FlushTimeoutError
from ..runtime.loggers import get_logger

__all__ = ["FlushAtShutdown", "loghub_lifespan"]

_log = get_logger("loghub.integrations")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]


def loghub_lifespan(make: Callable[[], Producer], *, timeout: float = 10.0) -> Lifespan:
    """Return the lifespan of an application of FastAPI or Starlette that owns one producer.

    The producer is made before the first request, in each worker. Handlers find it as ``app.state.producer`` and as
    ``request.state.producer``. After the last request it is closed, off the event loop. Then every other producer of
    the process is flushed, such as those of handlers of ``logging``. A timeout is logged, and the server continues.

    In a lifespan of your own: ``async with loghub_lifespan(make)(app): ...``.

    :param make: the function that makes the producer, such as ``lambda: Producer(project)``.
    :param timeout: the limit of the close, and of the flush after it, seconds each.
    :raises ConfigError: ``make`` is not callable.
    """
    if not callable(make):
        raise ConfigError("make", "must be a function that returns a Producer", type(make).__qualname__)

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        producer = make()
        app.state.producer = producer
        try:
            yield {"producer": producer}
        finally:
            try:
                await producer.aclose(timeout)
            except CloseTimeoutError as error:
                _log.warning("%s: %s", producer.name, error)
            await _flush_all(timeout)

    return lifespan


async def _flush_all(timeout: float) -> None:  # noqa: ASYNC109  # deliveries go on
    """Flush every producer of the process without blocking the event loop; log a timeout.

    :param timeout: seconds.
    """
    try:
        await asyncio.to_thread(flush_all, timeout)
    except FlushTimeoutError as error:
        _log.warning("%s", error)


class FlushAtShutdown:
    """Middleware that flushes after the application has shut down, before the server is notified.

    It flushes every producer of the process, also those of handlers, sinks, processors and exporters of
    ``loghub.integrations``. A flush that exceeds ``timeout`` is logged, and the server continues.

    :param app: the application, which need not support the lifespan protocol.
    :param timeout: the limit of all flushes together, seconds.
    """

    def __init__(self, app: App, *, timeout: float = 10.0) -> None:
        self._app, self._timeout = app, timeout

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
                await _flush_all(self._timeout)
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
        """Answer the server's lifespan events for an application that ignores them, and return at the shutdown."""
        if not received:
            await receive()
        await answer({"type": "lifespan.startup.complete"})
        await receive()
        await answer({"type": "lifespan.shutdown.complete"})
