"""``LogHubCollector``, under the real prometheus_client."""

from __future__ import annotations

import gc
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from producer import Producer, ProducerConfig
from producer.channels import MemoryChannel
from producer.integrations.prometheus import LogHubCollector
from producer.server.store.log_groups import StoredLog
from producer.testing import RecordingSink
from tests.integrations.conftest import PROJECT


def test_figures_are_served_under_prometheus_names(
    producer: Producer, logstore: str, arrived: Callable[[], list[StoredLog]]
) -> None:
    """What Prometheus reads: units in the names, counters that end with ``_total``, a label for each producer."""
    registry = CollectorRegistry()
    with Producer(sink=RecordingSink(), config=ProducerConfig(name="durable"), channel=MemoryChannel()) as durable:
        registry.register(LogHubCollector(producer, durable))
        producer.stream(PROJECT, logstore).send_many([{"n": n} for n in range(7)])
        arrived()
        text = generate_latest(registry).decode()
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    own = ("producer", producer.name)
    assert found["loghub_producer_logs_accepted_total", own] == 7
    assert found["loghub_producer_logs_delivered_total", own] == 7
    assert found["loghub_producer_requests_total", own] >= 1
    assert found["loghub_producer_memory_limit_bytes", own] == 100 * 2**20
    assert found["loghub_producer_memory_used_bytes", own, ("stage", "open")] == 0
    assert found["loghub_producer_memory_wait_seconds_total", own] == 0
    assert [name for name in found if name[0] == "loghub_producer_destination_held"]
    assert found["loghub_producer_channel_fill_ratio", ("producer", "durable")] == 0
    assert ("loghub_producer_channel_fill_ratio", own) not in found


def test_the_collector_keeps_no_producer() -> None:
    """One that is gone has no figures, and is drained as ever."""
    registry = CollectorRegistry()
    producer = Producer(sink=RecordingSink())
    registry.register(LogHubCollector(producer))
    assert "loghub_producer_logs_pending{" in generate_latest(registry).decode()
    del producer
    gc.collect()
    assert "loghub_producer_logs_pending{" not in generate_latest(registry).decode()
