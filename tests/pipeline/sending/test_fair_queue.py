"""The fair queue chooses the next batch, and holds back those that may not be sent yet."""

from __future__ import annotations

import math
import random
import time
from collections import Counter

import pytest

from producer.pipeline.batching.batch import ProducerBatch
from producer.pipeline.sending.gates import Verdict
from producer.pipeline.sending.turns import Turns
from tests.pipeline.sending.kit import Line


def test_streams_with_equal_backlogs_get_equal_bytes_whatever_the_size_of_their_batches() -> None:
    """A stream of large batches and one of small ones get the same bytes, to within one batch."""
    line, served = Line(), Counter[str]()
    for _ in range(400):
        line.put("small", 1_000)
    for _ in range(40):
        line.put("large", 10_000)
    while len(line.queue) > 100:
        batch = line.serve()
        served[batch.key.topic] += batch.size
        assert abs(served["small"] - served["large"]) <= 10_000


def test_behind_ten_thousand_batches_of_one_stream_the_single_batch_of_another_is_first_or_second() -> None:
    """Behind ten thousand batches of one stream, the single batch of another is first or second."""
    line = Line()
    for _ in range(10_000):
        line.put("busy", 500_000)
    for n in range(20):
        line.serve()
        light = line.put(f"light-{n}", 100)
        assert light in (line.serve(), line.serve())


def test_a_stream_that_comes_one_batch_at_a_time_gets_no_more_than_its_share() -> None:
    """A stream that enqueues its next batch after each delivery, as ordered ones do, gets the same bytes as a
    backlog.
    """
    line, served = Line(), Counter[str]()
    for _ in range(300):
        line.put("backlog", 1000)
    line.put("ordered", 1000)
    for _ in range(200):
        batch = line.serve()
        served[batch.key.topic] += batch.size
        if batch.key.topic == "ordered":
            line.put("ordered", 1000)
    assert abs(served["ordered"] - served["backlog"]) <= 1000


def test_a_stream_that_was_idle_or_paused_while_another_sent_much_takes_equal_turns_afterwards() -> None:
    """A stream that was idle, or paused, while another sent much takes equal turns afterwards."""
    line = Line()
    for _ in range(1000):
        line.put("busy")
    held = line.put("held", logstore="held")
    for _ in range(50):
        line.put("held", logstore="held")
    turn = next(turn for turn in iter(line.take, None) if turn.batch is held or line.done(turn))
    line.done(turn, Verdict.OVER_QUOTA)
    for _ in range(500):
        assert line.serve().key.logstore == "l"
    line.pass_time(1.0)
    while line.serve().key.logstore != "held":
        pass
    served = [line.serve().key.topic for _ in range(40)]
    assert 19 <= served.count("held") <= 21


def test_the_streams_of_all_logstores_of_a_destination_take_turns() -> None:
    """Shares are those of streams: a logstore with one stream gets no more than each of another's nine streams."""
    line, served = Line(), Counter[str]()
    for _ in range(100):
        line.put("alone", logstore="one")
        for n in range(9):
            line.put(f"of-nine-{n}", logstore="nine")
    for _ in range(500):
        served[line.serve().key.topic] += 1
    assert set(served.values()) == {50}


def test_a_streams_batches_go_oldest_first_and_so_does_a_retry() -> None:
    """A retried batch is sent before later batches of its stream."""
    line = Line()
    first, second = line.put(), line.put()
    rest = [line.put() for _ in range(5)]
    assert [line.serve(), line.serve()] == [first, second]
    line.again(second)
    line.again(first)
    assert [line.serve() for _ in range(7)] == [first, second, *rest]


def test_a_free_thread_goes_to_the_destination_with_fewer_attempts() -> None:
    """A free thread goes to the destination with fewer attempts: four slow destinations leave threads to the others."""
    line = Line(threads=4)
    for _ in range(100):
        line.put(project="slow")
    slow = [line.take() for _ in range(4)]
    for _ in range(100):
        line.put(project="fast")
    line.done(slow.pop(), seconds=0.5)
    for _ in range(10):
        turn = line.take()
        assert turn.batch.key.project == "fast"
        line.done(turn)
    line.done(slow.pop(), seconds=0.5)
    assert sorted(line.take().batch.key.project for _ in range(2)) == ["fast", "fast"]


def test_with_responses_after_two_seconds_two_of_four_threads_stay_free_for_a_brisk_destination() -> None:
    """With responses after two seconds, two of four threads stay free for a brisk destination, also between its
    batches.
    """
    line = Line(threads=4)
    for _ in range(50):
        line.put(project="slow")
    for _ in range(6):
        line.done(line.take(), seconds=2.0)
    line.put(project="brisk")
    while line.serve().key.project != "brisk":
        pass
    turns = [line.take() for _ in range(2)]
    assert line.queue.take(line.now) is None
    line.put(project="brisk")
    assert line.serve().key.project == "brisk"
    assert line.queue.take(line.now) is None
    line.now += 10.0
    assert [line.take().batch.key.project for _ in range(2)] == ["slow", "slow"]
    assert len(turns) == 2


def test_a_slow_destination_may_use_all_threads_if_no_other_is_in_use() -> None:
    """A slow destination may use all threads if no other is in use."""
    line = Line(threads=4)
    for _ in range(50):
        line.put(project="slow")
    for _ in range(6):
        line.done(line.take(), seconds=2.0)
    assert [line.take().batch.key.project for _ in range(4)] == ["slow"] * 4


def test_destinations_that_are_not_reached_together_leave_half_of_the_threads() -> None:
    """Three unreachable destinations use at most two of four threads."""
    line = Line(threads=4)
    for n in range(3):
        for _ in range(10):
            line.put(project=f"dead-{n}")
    for _ in range(3):
        line.done(line.take(), Verdict.NO_ANSWER)
    turns = [line.take(), line.take()]
    assert line.queue.take(line.now) is None
    line.put(project="alive")
    assert line.take().batch.key.project == "alive"
    line.done(turns.pop())
    assert line.take().batch.key.project.startswith("dead")


def test_a_destination_gets_no_more_than_its_limit() -> None:
    """With a limit of two, four free threads take two batches, and the next one when one is done."""
    line = Line(threads=4, limit=2)
    for _ in range(5):
        line.put()
    first, _ = line.take(), line.take()
    assert line.queue.take(line.now) is None
    line.done(first)
    assert line.take() is not None


def test_a_closed_gate_releases_no_batch_a_half_open_one_releases_one() -> None:
    """A closed gate releases no batch, a half-open one releases one; after its success all are released."""
    line = Line(threads=4)
    batches = [line.put(str(n)) for n in range(1000)]
    line.serve(Verdict.UNREACHABLE)
    assert line.queue.take(line.now) is None
    line.pass_time(1.0)
    probe = line.take()
    assert line.queue.take(line.now) is None
    line.done(probe, Verdict.UNREACHABLE)
    line.pass_time(1.9)
    assert line.queue.take(line.now) is None
    line.pass_time(0.1)
    assert line.serve() in batches
    assert all(line.serve() in batches for _ in range(997))
    assert len(line.queue) == 0


def test_if_the_probe_was_completed_before_its_attempt_the_next_batch_is_the_probe() -> None:
    """If the probe was completed before its attempt, the next batch is the probe."""
    line = Line()
    for _ in range(3):
        line.put()
    line.serve(Verdict.UNREACHABLE)
    line.pass_time(1.0)
    line.serve(Verdict.NOT_TRIED)
    line.serve()
    assert line.queue.stats(line.now)[0].held is None


def test_a_quota_holds_back_its_logstore_alone() -> None:
    """A logstore over its quota waits; the others of the destination are sent as before."""
    line = Line(threads=4)
    for _ in range(10):
        line.put(logstore="full")
    line.serve(Verdict.OVER_QUOTA)
    for _ in range(10):
        line.put(logstore="free")
    assert [line.take().batch.key.logstore for _ in range(4)] == ["free"] * 4
    assert line.queue.take(line.now) is None
    held = line.queue.stats(line.now)[0].held_logstores
    assert [(one.name, one.reason) for one in held] == [("full", "over quota")]


def test_a_batch_behind_a_closed_gate_has_a_last_chance() -> None:
    """When a later attempt would be too late, a batch is sent through a closed gate, with the start of its wait."""
    line = Line(last_chance=lambda batch, since, *, over_quota: max(since, batch.created_at) + 10.0)
    line.put()
    line.serve(Verdict.MISCONFIGURED)
    line.now = 0.5
    early = line.put()
    line.now = 3.0
    line.put()
    for _ in range(20):
        line.pass_time(0.375)
        while (turn := line.queue.take(line.now)) is not None and turn.batch is not early:
            line.done(turn, Verdict.MISCONFIGURED)
            line.again(turn.batch)
        if turn is not None and turn.last_since is not None:
            break
        if turn is not None:  # it was the probe
            line.done(turn, Verdict.MISCONFIGURED)
            line.again(early)
    assert turn is not None
    assert (turn.batch, turn.last_since) == (early, 0.0)
    assert line.now == pytest.approx(10.5, abs=0.4)


def test_a_batch_may_wait_longer_for_a_quota_than_for_an_unreachable_endpoint() -> None:
    """A batch may wait longer for a quota than for an unreachable endpoint."""
    for verdict, seconds in ((Verdict.OVER_QUOTA, 40.0), (Verdict.UNREACHABLE, 0.5)):
        line = Line(last_chance=lambda _batch, _since, *, over_quota: 40.0 if over_quota else 0.5)
        line.put()
        line.serve(verdict)
        waiting = line.put()
        line.pass_time(0.6)
        turn = line.queue.take(line.now)
        assert (turn is not None and turn.batch is waiting) == (seconds < 0.6)


def test_a_batch_that_comes_too_late_to_a_closed_gate_goes_at_once() -> None:
    """If the last chance is over already, the alarm is now."""
    line = Line(last_chance=lambda _batch, _since, *, over_quota: 1.0)
    line.put()
    line.serve(Verdict.UNREACHABLE)
    line.pass_time(0.9)
    line.now = 1.5
    late = line.put()
    assert line.queue.alarm <= line.now
    line.queue.wake(line.now)
    assert line.take().batch is late


def test_a_probe_spends_no_last_chance() -> None:
    """A late batch at a gate whose time is over is the probe; those behind it have their last chance meanwhile."""
    line = Line(last_chance=lambda _batch, _since, *, over_quota: 0.5)
    first = line.put()
    line.serve(Verdict.UNREACHABLE)
    line.now = 1.2
    line.again(first)
    second = line.put()
    probe = line.take()
    assert (probe.batch, probe.last_since) == (first, None)
    assert line.queue.alarm <= line.now
    line.queue.wake(line.now)
    assert line.take()[:3] == (second, 1.2, 0.0)


def test_without_gates_everything_goes() -> None:
    """Once gates are ignored, waiting and new batches are sent, past closed gates and full limits."""
    line = Line(threads=8, limit=1)
    for n in range(3):
        line.put(project=f"p{n}")
        line.put(project=f"p{n}", logstore="other")
    for verdict in (Verdict.UNREACHABLE, Verdict.OVER_QUOTA):
        line.serve(verdict)
    line.queue.ignore_gates()
    line.put(project="p0")
    assert [line.take() for _ in range(5)]
    assert len(line.queue) == 0


def test_after_a_clear_no_batch_comes_out_whatever_is_done_later() -> None:
    """After a clear no batch comes out, whatever is done later."""
    line = Line()
    for n in range(5):
        line.put(str(n))
    turn = line.take()
    line.queue.clear()
    line.done(turn)
    assert (len(line.queue), line.queue.take(line.now)) == (0, None)


def test_a_bounded_number_of_idle_destinations_is_remembered() -> None:
    """Of ten thousand idle destinations and logstores a bounded number is remembered, after a minute only the last."""
    line = Line()
    for n in range(10_000):
        line.put(project=str(n), logstore=str(n))
        line.serve()
    assert len(line.queue._destinations) <= 1024
    line.pass_time(100.0)
    line.put()
    line.serve()
    assert list(line.queue._destinations) == ["p"]
    assert len(line.queue._idle) <= 2
    assert not line.queue._alarms.members


def test_the_statistics_have_limit_in_flight_queued_and_reason_and_time_of_a_pause() -> None:
    """The statistics have limit, in flight, queued, and reason and time of a pause; at most a hundred entries."""
    line = Line(threads=4)
    for _ in range(3):
        line.put(project="dead")
    line.put(project="alive")
    turns = [line.take(), line.take()]
    line.done(next(turn for turn in turns if turn.batch.key.project == "dead"), Verdict.UNREACHABLE)
    line.now = 0.25
    dead, alive = sorted(line.queue.stats(line.now), key=lambda one: one.name, reverse=True)
    assert dead.held is not None
    assert (dead.limit, dead.in_flight, dead.queued) == (2, 0, 2)
    assert (dead.held.reason, dead.held.seconds) == ("unreachable", 0.75)
    assert (alive.limit, alive.in_flight, alive.queued, alive.held) == (4, 1, 0, None)
    for n in range(300):
        line.put(project=str(n))
    assert len(line.queue.stats(line.now)) == 100


def _cost_of_a_batch(streams: int) -> float:
    line = Line()
    for n in range(streams):
        line.put(str(n))
    batches = [line.put(str(n)) for n in range(1000)]
    started = time.perf_counter()
    for batch in batches:
        line.serve()
        line.again(batch)
    return (time.perf_counter() - started) / len(batches)


def test_a_batch_costs_about_the_same_with_a_hundred_thousand_streams() -> None:
    """Among 100,000 streams, put, take and done cost at most ten times as much as among 100."""
    few, many = min(_cost_of_a_batch(100) for _ in range(3)), _cost_of_a_batch(100_000)
    assert many < 10 * few


def test_random_histories_lose_and_repeat_nothing() -> None:
    """With any verdicts, times and retries, each batch is taken exactly once for each put, and all come out in
    the end.
    """
    rng = random.Random(7)
    for _ in range(60):
        line = Line(threads=4, last_chance=lambda batch, _since, *, over_quota: batch.created_at + 40.0)
        waiting: set[ProducerBatch] = set()
        turns = []
        for _ in range(400):
            step = rng.random()
            if step < 0.4:
                waiting.add(
                    line.put(
                        str(rng.randrange(4)),
                        rng.randrange(1, 999),
                        project=rng.choice("ab"),
                        logstore=rng.choice("xy"),
                    )
                )
            elif step < 0.7 and len(turns) < 4:
                turn = line.queue.take(line.now)
                if turn is not None:
                    waiting.remove(turn.batch)
                    turns.append(turn)
            elif step < 0.9 and turns:
                turn = turns.pop(rng.randrange(len(turns)))
                verdict = rng.choice(list(Verdict))
                line.done(turn, verdict)
                if verdict is not Verdict.ACCEPTED and turn.last_since is None:
                    line.again(turn.batch)
                    waiting.add(turn.batch)
            else:
                line.pass_time(rng.random() * 3)
            assert len(line.queue) == len(waiting)
            assert line.queue.alarm > line.now or not line.queue.wake(line.now)
        for turn in turns:
            line.done(turn)
        for _ in range(200):
            line.pass_time(5.0)
            while (turn := line.queue.take(line.now)) is not None:
                waiting.remove(turn.batch)
                line.done(turn)
        assert not waiting


def test_turns_are_in_order_whatever_is_changed_and_removed() -> None:
    """The lowest turn is first, of equal ones the earliest; a changed turn counts as last put."""
    rng, turns, model, order = random.Random(3), Turns(), dict[int, tuple[float, int]](), 0
    for _ in range(5000):
        member, turn = rng.randrange(50), float(rng.randrange(20))
        if rng.random() < 0.7:
            order += 1
            if model.get(member, (None, 0))[0] != turn:
                model[member] = turn, order
            turns.put(member, turn)
        else:
            turns.remove(member)
            model.pop(member, None)
        first = turns.first()
        expected = min(model, key=lambda one: model[one], default=None)
        assert (None if first is None else first[2]) == expected
        assert turns.turn_of(member) == model.get(member, (math.inf, 0))[0]
        assert len(turns.members) == len(model)
