"""One period of listening: a thread with an event loop that runs uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time

import uvicorn

from ..errors import ServerStartError
from ..service import Service
from .app import make_app
from .connection import LogHubConnection
from .forks import close_in_children

_START_SECONDS = 10.0
_THREAD = "loghub-server"


class Runner:
    """A server that runs from its creation until :meth:`stop`."""

    def __init__(self, service: Service, listener: socket.socket) -> None:
        """Start; on return connections are accepted.

        :raises ServerStartError: the HTTP server did not start.
        """
        connection = type("Connection", (LogHubConnection,), {"limits": service.limits})
        self._server = _UvicornServer(
            uvicorn.Config(
                make_app(service),
                http=connection,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                proxy_headers=False,
            )
        )
        self._listener = listener
        logging.getLogger("uvicorn.error").addFilter(_is_for_the_application)
        self._thread = threading.Thread(target=self._run, name=_THREAD, daemon=True)
        self._thread.start()
        if not self._server.ready.wait(_START_SECONDS):
            raise ServerStartError(
                f"the server did not start within {_START_SECONDS:g} s: read the log of uvicorn.error for the reason"
            )
        self._forget = close_in_children(listener, self._server.server_state.connections)

    def stop(self, grace: float) -> None:
        """Stop, with ``grace`` seconds for requests in progress."""
        self._server.stop(grace)
        self._thread.join()
        self._forget()

    def _run(self) -> None:
        with contextlib.closing(self._listener):
            asyncio.run(self._server.serve(sockets=[self._listener]))


def _is_for_the_application(record: logging.LogRecord) -> bool:
    """Return True unless uvicorn's line only reports that this embedded server starts or stops."""
    return record.threadName != _THREAD or record.levelno >= logging.WARNING


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that stops at once: the original loop polls every 0.1 s and waits for idle connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._grace = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    def stop(self, grace: float) -> None:
        """Stop the server from another thread."""
        self._grace = grace
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.ready.set()
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the listener, give requests in progress their grace, and cut the remaining connections."""
        await self._finish_accepting(sockets or [])
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._wait_for_tasks()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        # The aborted transports close their sockets in the loop's next round, and their requests know of it then.
        await asyncio.sleep(0)
        for task in list(self.server_state.tasks):
            task.cancel()
        await asyncio.gather(*self.server_state.tasks, return_exceptions=True)

    async def _finish_accepting(self, listeners: list[socket.socket]) -> None:
        """Accept no more, and let what was just accepted become connections: asyncio leaks those it meets after a
        close.
        """
        loop = asyncio.get_running_loop()
        for listener in listeners:
            loop.remove_reader(listener)
        accepting = asyncio.all_tasks() - self.server_state.tasks - {asyncio.current_task()}
        if accepting:
            await asyncio.wait(accepting, timeout=1.0)

    async def _wait_for_tasks(self) -> None:
        deadline = time.monotonic() + self._grace
        while self.server_state.tasks and time.monotonic() < deadline:
            await asyncio.wait(list(self.server_state.tasks), timeout=deadline - time.monotonic())
