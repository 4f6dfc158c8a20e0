"""Parameters of requests to the monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from ...text.printable import one_line

_MOST_SHOWN = 200


class QueryError(ValueError):
    """Raised for an invalid parameter; the answer has the status 400."""

    def __init__(self, rule: str, given: str) -> None:
        super().__init__(f"{rule}, got {one_line(given[:_MOST_SHOWN])!r}")


def parameters_of(query: str) -> Mapping[str, str]:
    """Return the parameters of a URL's query; of a repeated one the last value."""
    return {name: values[-1] for name, values in parse_qs(query).items()}
