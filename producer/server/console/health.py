"""``/healthz`` and ``/metrics``, for monitoring. They contain no names of projects or clients."""

from __future__ import annotations

from ..activity import prometheus_text
from ..messages import Answer
from ..service import Service
from .plain import PlainRequest, text_answer


async def healthz(service: Service, _request: PlainRequest) -> Answer:
    """``GET /healthz``: ``ok`` if the store answers."""
    await service.stored(service.store.projects("", 0, 0))
    return text_answer("ok\n")


async def metrics(service: Service, _request: PlainRequest) -> Answer:
    """``GET /metrics``: totals of requests, memory in use, and searches that run."""
    taken = service.memory.total - service.memory.free
    gauges = {
        "loghub_request_memory_bytes": ("Bytes that requests hold.", taken),
        "loghub_request_memory_limit_bytes": ("Bytes that requests may hold.", service.memory.total),
        "loghub_searches_running": ("Searches that run.", service.searches.total - service.searches.free),
    }
    text = prometheus_text(service.activity, {name: (meaning, float(v)) for name, (meaning, v) in gauges.items()})
    return text_answer(text, "text/plain; version=0.0.4; charset=utf-8")
