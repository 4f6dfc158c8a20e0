"""Run a web application that owns one producer: ``uvicorn fastapi_lifespan:app``.

Written for Starlette. With FastAPI it is the same: ``app = FastAPI(lifespan=loghub_lifespan(make))``, and
``request.app.state.producer`` in the handlers.
"""

from __future__ import annotations

import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from loghub import EnvironmentCredentials, Producer, ProducerConfig, ProjectConfig, SendTimeoutError
from loghub.integrations.asgi import loghub_lifespan


def make() -> Producer:
    """Make the producer of a worker. Its send never blocks the event loop: when the buffer is full, it raises."""
    project = ProjectConfig("my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=EnvironmentCredentials())
    return Producer(project, config=ProducerConfig(max_block_ms=0))


async def log(request: Request) -> JSONResponse:
    """Accept a log and respond at once; it is delivered in the background."""
    producer: Producer = request.app.state.producer
    try:
        producer.send("my-project", "app-log", await request.json())
    except SendTimeoutError:
        return JSONResponse({"accepted": False, "reason": "too much is waiting already"}, status_code=503)
    return JSONResponse({"accepted": True}, status_code=202)


app = Starlette(routes=[Route("/log", log, methods=["POST"])], lifespan=loghub_lifespan(make))
