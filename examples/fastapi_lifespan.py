"""Run a web application that owns one producer: ``uvicorn fastapi_lifespan:app``.

Written for Starlette. With FastAPI the function is the same: ``app = FastAPI(lifespan=lifespan)``, and
``request.app.state.producer`` in the handlers.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from loghub import EnvironmentCredentials, Producer, ProducerConfig, ProjectConfig, SendTimeoutError


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Make the producer before the first request; close it after the last, off the event loop."""
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    # send never blocks the event loop: when the buffer is full, it raises at once.
    app.state.producer = Producer(project, config=ProducerConfig(max_block_ms=0))
    try:
        yield
    finally:
        await asyncio.to_thread(app.state.producer.close, 10)


async def log(request: Request) -> JSONResponse:
    """Accept a log and respond at once; it is delivered in the background."""
    producer: Producer = request.app.state.producer
    try:
        producer.send("my-project", "app-log", await request.json())
    except SendTimeoutError:
        return JSONResponse({"accepted": False, "reason": "too much is waiting already"}, status_code=503)
    return JSONResponse({"accepted": True}, status_code=202)


app = Starlette(routes=[Route("/log", log, methods=["POST"])], lifespan=lifespan)
