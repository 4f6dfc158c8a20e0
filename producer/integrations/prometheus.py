"""Prometheus: a collector of ``prometheus_client`` for the figures of producers.

::

    prometheus_client.REGISTRY.register(LogHubCollector(producer))

In the multiprocess mode of ``prometheus_client`` (``PROMETHEUS_MULTIPROC_DIR``) no collector of anybody is asked: see
``docs/application/frameworks.md`` for what to do there.
"""

from __future__ import annotations

from collections.abc import Iterator

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
except ModuleNotFoundError as error:
    from ..text.extras import missing

    raise missing(error, "prometheus") from error
from prometheus_client.registry import Collector

from ..client.producer import Producer
from .figures import FIGURES, Figure, Watched

__all__ = ["LogHubCollector"]

_SUFFIXES = {"By": "_bytes", "s": "_seconds", "1": "_ratio"}


class LogHubCollector(Collector):
    """Asks producers for their figures each time that it is asked; keeps none of them alive.

    Names begin with ``loghub_producer_``, and end with their unit, counters with ``_total``. The label ``producer`` is
    the producer's name (``ProducerConfig.name``).

    :param producers: whose figures these are.
    """

    def __init__(self, *producers: Producer) -> None:
        self._watched = Watched(producers)

    def describe(self) -> Iterator[Metric]:
        """The metrics without figures: to register the collector asks nobody."""
        return iter([_family(figure, ()) for figure in FIGURES])

    def collect(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        known = list(self._watched.stats())
        for figure in FIGURES:
            samples = [({"producer": name, **labels}, value) for name, s in known for labels, value in figure.read(s)]
            family = _family(figure, tuple(samples[0][0]) if samples else ())
            for labels, value in samples:
                family.add_metric(list(labels.values()), value)
            yield family


def _family(figure: Figure, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if figure.grows else GaugeMetricFamily
    name = f"loghub_producer_{figure.name.replace('.', '_')}{_SUFFIXES.get(figure.unit, '')}"
    return kind(name, figure.help, labels=labels)
