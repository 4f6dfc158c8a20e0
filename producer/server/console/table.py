"""Addresses outside LogHub's API, with their handlers."""

from __future__ import annotations

from dataclasses import dataclass

from . import faulting, page, reading
from .health import healthz, metrics
from .plain import PlainHandler


@dataclass(frozen=True, slots=True)
class PlainRow:
    """A method and a path, their handler, and True if the address is public."""

    method: str
    path: str
    handler: PlainHandler
    is_public: bool = False


_API = "/console/api"

PLAIN_ROWS: list[PlainRow] = [
    PlainRow("GET", "/healthz", healthz, is_public=True),
    PlainRow("GET", "/metrics", metrics, is_public=True),
    PlainRow("GET", "/console", page.file("console.html", "text/html"), is_public=True),
    PlainRow("GET", "/console/console.css", page.file("console.css", "text/css"), is_public=True),
    *(PlainRow("GET", f"/console/{name}", page.file(name, "text/javascript"), is_public=True) for name in page.SCRIPTS),
    PlainRow("GET", f"{_API}/logstores", reading.list_logstores),
    PlainRow("GET", f"{_API}/search", reading.search),
    PlainRow("GET", f"{_API}/histogram", reading.histogram),
    PlainRow("GET", f"{_API}/fields", reading.fields),
    PlainRow("GET", f"{_API}/tail", reading.tail),
    PlainRow("GET", f"{_API}/neighbours", reading.neighbourhood),
    PlainRow("GET", f"{_API}/faults", faulting.list_faults),
    PlainRow("POST", f"{_API}/faults", faulting.add_fault),
    PlainRow("DELETE", f"{_API}/faults/{{id}}", faulting.remove_fault),
    PlainRow("GET", f"{_API}/requests", faulting.list_requests),
    PlainRow("GET", f"{_API}/producers", faulting.list_producers),
]
