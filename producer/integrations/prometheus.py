"""A collector of ``prometheus_client`` for the metrics of producers.

::

    prometheus_client.REGISTRY.register(LogHubCollector(producer))

The multiprocess mode of ``prometheus_client`` (``PROMETHEUS_MULTIPROC_DIR``) ignores all collectors. The page on
frameworks in the documentation has a way for it.
"""

from __future__ import annotations

from collections.abc import Iterator

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
except ModuleNotFoundError as error:
    from ..text.extras import missing

    raise missing(error, "prometheus") from error
from prometheus_client.registry import Collector

from ..client.producer import Producer
from .figures import FIGURES, LATENCY, Figure, Watched, buckets, latencies

__all__ = ["LogHubCollector"]

_SUFFIXES = {"By": "_bytes", "s": "_seconds", "1": "_ratio"}


class LogHubCollector(Collector):
    """A collector that reads the metrics of producers at each scrape, and keeps no producer alive.

    Names begin with ``loghub_producer_`` and end with the unit, those of counters with ``_total``. The label
    ``producer`` is the producer's name (``ProducerConfig.name``).

    :param producers: the producers to observe.
    """

    def __init__(self, *producers: Producer) -> None:
        self._watched = Watched(producers)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values, so that registration does not read producers."""
        return iter([*(_family(figure, ()) for figure in FIGURES), _latency()])

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        known = list(self._watched.stats())
        for figure in FIGURES:
            samples = [({"producer": name, **labels}, value) for name, s in known for labels, value in figure.read(s)]
            family = _family(figure, tuple(samples[0][0]) if samples else ())
            for labels, value in samples:
                family.add_metric(list(labels.values()), value)
            yield family
        histogram = _latency()
        for name, stats in known:
            for where, latency in latencies(stats):
                histogram.add_metric([name, *where.values()], list(buckets(latency)), latency.seconds)
        yield histogram


def _latency() -> HistogramMetricFamily:
    name, unit, words = LATENCY
    return HistogramMetricFamily(_name(name, unit), words, labels=("producer", "destination"))


def _name(name: str, unit: str) -> str:
    return f"loghub_producer_{name.replace('.', '_')}{_SUFFIXES.get(unit, '')}"


def _family(figure: Figure, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if figure.grows else GaugeMetricFamily
    return kind(_name(figure.name, figure.unit), figure.help, labels=labels)
