"""``LogHubCollector`` under the real prometheus_client."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from producer import ConfigError, Producer, ProducerConfig, ProjectConfig, RejectedError
from producer.channels import MemoryChannel
from producer.integrations.prometheus import LogHubCollector
from producer.server.store.log_groups import StoredLog
from producer.testing import RecordingSink, ScriptedSink
from tests.integrations.conftest import PROJECT


def test_figures_are_served_under_prometheus_names(
    producer: Producer, logstore: str, arrived: Callable[[], list[StoredLog]]
) -> None:
    """Metrics have Prometheus' names: units at the end, ``_total`` for counters, a label for each producer."""
    registry = CollectorRegistry()
    two = ProjectConfig("two", endpoints=["http://a", "http://b"], access_key_id="a", access_key_secret="s")
    with (
        Producer(sink=RecordingSink(), config=ProducerConfig(name="durable"), channel=MemoryChannel()) as durable,
        Producer(two, config=ProducerConfig(name="two")) as with_two,
    ):
        registry.register(LogHubCollector(producer, durable, with_two))
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
    [there] = producer.stats().destinations
    where = ("destination", there.name)
    assert found["loghub_producer_destination_requests_total", where, own] == there.requests >= 1
    assert found["loghub_producer_destination_logs_delivered_total", where, own] == 7
    assert found["loghub_producer_destination_delivered_bytes_total", where, own] == there.delivered_bytes > 0
    assert found["loghub_producer_destination_sent_bytes_total", where, own] == there.sent_bytes > 0
    duration = "loghub_producer_destination_request_duration_seconds"
    assert found[f"{duration}_bucket", where, ("le", "+Inf"), own] == found[f"{duration}_count", where, own] >= 1
    assert found[f"{duration}_sum", where, own] == there.latency.seconds > 0
    assert found["loghub_producer_channel_fill_ratio", ("producer", "durable")] == 0
    of_two = ("producer", "two"), ("project", "two")
    in_use = {url: found["loghub_producer_endpoint_in_use", ("endpoint", url), *of_two] for url in two.endpoints}
    assert in_use == {"http://a": 1, "http://b": 0}
    assert found["loghub_producer_endpoint_changes_total", *of_two] == 0
    assert ("loghub_producer_channel_fill_ratio", own) not in found


def test_a_collector_of_something_that_is_not_a_producer_is_refused() -> None:
    """A collector of something that is not a producer is refused."""
    with pytest.raises(ConfigError, match="producer: must be a Producer"):
        LogHubCollector("shop")  # type: ignore[arg-type]


def test_failures_of_a_destination_have_their_codes() -> None:
    """Failed requests have the labels ``destination`` and ``code``; the last one has a time, but no text."""
    registry = CollectorRegistry()
    sink = ScriptedSink([RejectedError("InvalidLog", "the text", http_status=400)])
    with Producer(sink=sink, config=ProducerConfig(name="shop")) as producer:
        registry.register(LogHubCollector(producer))
        producer.send("p", "l", {"n": 1}, urgent=True).exception(60)
        where = {"destination": "p", "producer": "shop"}
        failed = "loghub_producer_destination_requests_failed_total"
        assert registry.get_sample_value(failed, where | {"code": "InvalidLog"}) == 1
        at = registry.get_sample_value("loghub_producer_destination_last_error_timestamp_seconds", where)
        assert at == pytest.approx(time.time(), abs=60)
        assert "the text" not in generate_latest(registry).decode()


def test_a_collector_keeps_no_producer_alive() -> None:
    """A collector keeps no producer alive."""
    registry = CollectorRegistry()
    producer = Producer(sink=RecordingSink())
    registry.register(LogHubCollector(producer))
    assert "loghub_producer_logs_pending{" in generate_latest(registry).decode()
    del producer
    gc.collect()
    assert "loghub_producer_logs_pending{" not in generate_latest(registry).decode()


#: A worker as under gunicorn with PROMETHEUS_MULTIPROC_DIR: with its own registry and port, until its input ends.
WORKER = """
import sys
import pytest
from prometheus_client import CollectorRegistry, Counter, start_http_server
from producer import ConfigError, Producer, ProducerConfig
from producer.integrations.prometheus import LogHubCollector
from producer.testing import RecordingSink

Counter("requests", "of the worker").inc()  # what the shared files are for
number = int(sys.argv[1])
own = CollectorRegistry()
with Producer(sink=RecordingSink(), config=ProducerConfig(name=f"worker-{number}")) as producer:
    own.register(LogHubCollector(producer))
    producer.stream("my-project", "app-log").send_many([{"n": n} for n in range(number)])
    producer.flush(10)
    server, thread = start_http_server(0, "127.0.0.1", registry=own)
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()
    server.server_close()
    thread.join()
"""


def test_in_multiprocess_mode_each_worker_serves_its_own_figures(tmp_path: Path) -> None:
    """In multiprocess mode a registry of each worker's own has its producer's metrics."""
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER, str(number)],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in (3, 5)
        ]
        for number, worker in zip((3, 5), workers, strict=True):
            assert worker.stdout is not None
            with urlopen(f"http://127.0.0.1:{worker.stdout.readline().strip()}/metrics", timeout=60) as answer:
                figures = answer.read().decode()
            assert f'loghub_producer_logs_delivered_total{{producer="worker-{number}"}} {number}.0' in figures
            assert "\nrequests_total" not in figures
        for worker in workers:
            worker.communicate(timeout=60)
            assert worker.returncode == 0
        gathered = CollectorRegistry()
        MultiProcessCollector(gathered, str(tmp_path))
        assert gathered.get_sample_value("requests_total") == 2
        assert "loghub_producer" not in generate_latest(gathered).decode()
