"""The figures of each destination in ``stats()``."""

import json

from producer.model.errors import AttemptError, NetworkError, QuotaExceededError, RejectedError
from producer.model.interfaces import Delivery
from producer.model.metrics import LATENCY_BOUNDS, DestinationStats, FewNames
from producer.model.records import StreamKey
from producer.testing import ScriptedSink
from tests.support.clocks import JumpingClock
from tests.support.pipelines import KEY, record, settle, threadless


def _slow(clock: JumpingClock, seconds: float, error: AttemptError | None = None) -> object:
    def answer(_delivery: Delivery) -> AttemptError | None:
        clock.advance(seconds)
        return error

    return answer


def _only(destinations: tuple[DestinationStats, ...]) -> DestinationStats:
    [found] = destinations
    return found


def test_a_destination_has_its_logs_bytes_latency_failures_and_last_error() -> None:
    """Each attempt is counted once: a timeout has no latency, a refusal has, and delivered logs only once."""
    clock = JumpingClock()
    timeout = NetworkError("RequestTimeout", "no answer\nat all")
    quota = QuotaExceededError("WriteQuotaExceed", "x" * 1000, request_id="R1", http_status=403)
    sink = ScriptedSink([_slow(clock, 9.0, timeout), _slow(clock, 0.3, quota), _slow(clock, 0.02), _slow(clock, 99.0)])  # type: ignore[list-item]
    pipeline = threadless(sink, clock, batch_count_threshold=3)
    for _ in range(2):
        pipeline.admission.accept(KEY, record(logs=3), 3, None)
    pipeline.flush(1000)
    found = _only(pipeline.stats().destinations)
    bodies = [len(delivery.payload.body) for delivery in sink.attempts]
    assert (found.requests, found.delivered_logs) == (4, 6)
    assert (found.sent_bytes, found.delivered_bytes) == (sum(bodies), sum(bodies[-2:]))
    latency = {limit: n for limit, n in zip((*LATENCY_BOUNDS, None), found.latency.counts, strict=True) if n}
    assert latency == {0.025: 1, 0.5: 1, None: 1}
    assert (found.latency.count, round(found.latency.seconds, 6)) == (3, 99.32)
    assert found.failures_by_code == {"RequestTimeout": 1, "WriteQuotaExceed": 1}
    assert found.last_error is not None
    assert (found.last_error.code, found.last_error.request_id) == ("WriteQuotaExceed", "R1")
    assert len(found.last_error.message) == 300
    assert json.loads(json.dumps(pipeline.stats().to_dict()))["destinations"][0]["latency"]["counts"][-1] == 1


def test_an_idle_destination_keeps_its_figures_and_their_number_is_bounded() -> None:
    """Counters never go back, also of destinations that are forgotten; the hundred and first shares its counts."""
    clock = JumpingClock()
    pipeline = threadless(ScriptedSink(), clock, batch_count_threshold=1)
    for number in range(103):
        pipeline.admission.accept(StreamKey(f"p{number}", "l"), record(), 1, None)
    settle(pipeline)
    clock.advance(10_000)
    pipeline.admission.accept(StreamKey("p0", "l"), record(), 1, None)
    settle(pipeline)
    found = {one.name: one.delivered_logs for one in pipeline.stats().destinations}
    assert (found["p0"], found["p99"], found["other destinations"], len(found)) == (2, 1, 3, 101)


def test_a_server_that_invents_error_codes_makes_no_series_without_an_end() -> None:
    """Of a hundred codes twenty are counted each on its own for a destination, and fifty for failed logs."""
    codes = [f"Code{number}" for number in range(100)]
    sink = ScriptedSink([RejectedError(code, "no", http_status=400) for code in codes])
    pipeline = threadless(sink, batch_count_threshold=1)
    for _ in codes:
        pipeline.admission.accept(KEY, record(), 1, None)
        settle(pipeline)
    stats = pipeline.stats()
    failures = _only(stats.destinations).failures_by_code
    assert (len(failures), failures["Code0"], failures["other"]) == (21, 1, 80)
    assert (len(stats.failed_by_code), stats.failed_by_code["other"]) == (51, 50)


def test_a_known_name_stays_itself_when_there_is_no_room_for_others() -> None:
    """A name beyond the limit is counted as other; the first ones keep their names."""
    names = FewNames(2)
    assert [names.of(name) for name in "abcab"] == ["a", "b", "other", "a", "b"]
