"""``/healthz`` and ``/metrics``, for monitoring. They contain no names of projects or clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..messages import Answer
from ..service import Service
from ..store.catalog import list_projects
from .plain import PlainRequest, text_answer

if TYPE_CHECKING:
    from ...wire.openmetrics import Metrics


async def healthz(service: Service, _request: PlainRequest) -> Answer:
    """``GET /healthz``: ``ok`` if the store answers."""
    await service.stored(list_projects, "", 0, 0)
    return text_answer("ok\n")


async def metrics(service: Service, request: PlainRequest) -> Answer:
    """``GET /metrics``: totals of requests, memory in use, and searches that run."""
    from ...wire.openmetrics import Metrics, answer_scrape  # noqa: PLC0415  # 40 ms, which most servers do not need

    found, none = Metrics(), dict[str, str]()
    _add_operations(service, found)
    memory, searches = service.memory, service.searches
    taken, total = memory.total - memory.free, memory.total
    found.add("loghub_request_memory_bytes", "gauge", "Bytes that requests hold.", none, taken)
    found.add("loghub_request_memory_limit_bytes", "gauge", "Bytes that requests may hold.", none, total)
    found.add("loghub_searches_running", "gauge", "Searches that run.", none, searches.total - searches.free)
    body, headers = answer_scrape(
        found, request.headers.get("accept") or "", request.headers.get("accept-encoding") or ""
    )
    return Answer(headers={**headers, "Cache-Control": "no-store"}, body=body)


def _add_operations(service: Service, found: Metrics) -> None:
    """Add the totals of requests, by operation and status of the answer."""
    logs, seconds = 0, ("loghub_request_duration_seconds", "summary", "Time from a request's head to its answer.")
    for (operation, status), sums in sorted(service.activity.operations().items()):
        labels = {"operation": operation, "status": status}
        found.add("loghub_requests_total", "counter", "Requests that ended.", labels, sums.requests)
        found.add(*seconds, labels, sums.seconds, "_sum")
        found.add(*seconds, labels, sums.requests, "_count")
        found.add("loghub_request_body_bytes_total", "counter", "Bytes of bodies as they arrived.", labels, sums.bytes)
        logs += sums.logs
    found.add("loghub_logs_stored_total", "counter", "Logs that were stored.", {}, logs)
