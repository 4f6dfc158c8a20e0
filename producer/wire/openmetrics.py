"""The answer to a scrape: Prometheus' text or OpenMetrics, as the client accepts, in gzip if it accepts that."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector


class Metrics(Collector):
    """Samples, grouped by metric as the formats require."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, name: str, kind: str, meaning: str, labels: Mapping[str, str], value: float, part: str = "") -> None:
        """Add a sample.

        :param name: the metric's name; that of a counter ends with ``_total``.
        :param kind: ``counter``, ``gauge`` or ``summary``.
        :param part: the end of a summary's sample, such as ``_sum``.
        """
        if name not in self._metrics:
            self._metrics[name] = Metric(name.removesuffix("_total"), meaning, kind)
        self._metrics[name].add_sample(name + part, dict(labels), value)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics in the order of their first samples."""
        return self._metrics.values()


def answer_scrape(metrics: Metrics, accept: str, accept_encoding: str) -> tuple[bytes, dict[str, str]]:
    """Return the body of the answer, and its headers.

    :param accept: the request's ``Accept``; empty for none.
    :param accept_encoding: likewise.
    """
    write, kind = choose_encoder(accept)
    body = write(metrics)
    if not gzip_accepted(accept_encoding):
        return body, {"Content-Type": kind}
    return gzip.compress(body, compresslevel=1), {"Content-Type": kind, "Content-Encoding": "gzip"}
