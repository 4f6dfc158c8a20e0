"""The queue, its gates and limits with a simulated server: they find its capacity, recover, and share it."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tests.pipeline.sending.simulation import Server, Simulation


@pytest.mark.parametrize("noise", [0.1, 0.4])
@pytest.mark.parametrize("capacity", [3, 8, 20])
def test_the_limit_finds_the_capacity_and_stays_there(capacity: int, noise: float) -> None:
    """Of 32 threads, at most twice the capacity are used, and the server is rarely idle."""
    server = Server(capacity, noise=noise)
    sim = Simulation(32, {"p": server})
    sim.backlog("p", "busy", 1000)
    sim.run(90)
    best = capacity / (server.service * math.exp(noise**2 / 2))
    assert sim.rate(30, 90) > 0.85 * best
    assert capacity <= sim.mean_limit(30, 90) <= 2.1 * capacity
    assert max(sim.limits_between(30, 90)) <= 2.5 * capacity + 1


def test_the_limit_follows_a_capacity_that_changes() -> None:
    """If the capacity changes from eight to two and to sixteen, limit and rate follow within ten seconds."""
    server = Server(8, noise=0.2)
    sim = Simulation(32, {"p": server})
    sim.backlog("p", "busy", 1000)
    for when, capacity in ((40, 2), (80, 16)):
        sim.at(when, lambda capacity=capacity: setattr(server, "capacity", capacity))
    sim.run(120)
    assert sim.mean_limit(50, 80) <= 6
    assert sim.rate(50, 80) > 0.85 * 20
    assert sim.mean_limit(90, 120) >= 14
    assert sim.rate(90, 120) > 0.85 * 160


def test_with_503_beyond_eight_at_a_time_the_server_does_four_fifths_of_its_capacity() -> None:
    """With 503 beyond eight at a time, the server does four fifths of its capacity, and few requests are refused."""
    sim = Simulation(32, {"p": Server(8, noise=0.2, most=8)})
    sim.backlog("p", "busy", 1000)
    sim.run(60)
    delivered = [one for one in sim.served if one.at >= 20]
    assert sim.rate(20, 60) > 0.8 * 80
    assert sim.attempts["p"] < 1.15 * len(sim.served)
    assert len(delivered) > 0


def test_after_an_outage_everything_flows_again_within_seconds() -> None:
    """During the outage there are few requests; afterwards the limit is back within ten seconds."""
    server = Server(100, noise=0.2)
    sim = Simulation(16, {"p": server})
    sim.backlog("p", "busy", 1000)
    sim.at(20, lambda: setattr(server, "reachable", False))
    sim.at(80, lambda: setattr(server, "reachable", True))
    sim.run(20.5)
    before = sim.attempts["p"]
    sim.run(80)
    assert sim.attempts["p"] - before < 30
    sim.run(120)
    assert sim.limits_between(90, 120) == [16]
    assert sim.rate(90, 120) > 0.9 * sim.rate(5, 20)


def test_a_healthy_server_gets_every_thread_however_noisy_its_latency() -> None:
    """Noisy latencies take no thread away, except briefly at the beginning."""
    sim = Simulation(16, {"p": Server(1000, noise=0.5)})
    sim.backlog("p", "busy", 1000)
    sim.run(120)
    assert sim.limits_between(1, 120) == [16]


def test_with_four_times_the_latency_at_any_limit_all_threads_are_in_use_again_after_half_a_minute() -> None:
    """With four times the latency at any limit, all threads are in use again after half a minute."""
    server = Server(1000, noise=0.2)
    sim = Simulation(16, {"p": server})
    sim.backlog("p", "busy", 1000)
    sim.at(20, lambda: setattr(server, "service", 0.4))
    sim.run(90)
    assert sim.mean_limit(55, 90) > 15


def test_with_a_quota_of_twenty_requests_a_second_a_logstore_gets_at_least_seventeen() -> None:
    """With a quota of twenty requests a second, a logstore gets at least seventeen, and another one its full rate."""
    sim = Simulation(16, {"p": Server(100, noise=0.2, quotas={"full": 20})})
    sim.backlog("p", "busy", 1000, "full")
    sim.backlog("p", "also busy", 1000, "free")
    sim.run(60)
    assert 17 <= sim.rate(20, 60, logstore="full") <= 20
    assert sim.rate(20, 60, logstore="free") > 100
    alone = Simulation(16, {"p": Server(100, noise=0.2)})
    alone.backlog("p", "also busy", 1000, "free")
    alone.run(60)
    assert sim.rate(20, 60) > 0.9 * alone.rate(20, 60)


def test_eight_light_streams_get_all_they_ask_for_two_busy_ones_share_the_rest_to_within_a_tenth() -> None:
    """Eight light streams get all they ask for; two busy ones share the rest, to within a tenth."""
    sim = Simulation(8, {"p": Server(8, noise=0.2)})
    sim.backlog("p", "large", 100_000)
    sim.backlog("p", "small", 20_000, batches=200)
    for n in range(8):
        sim.every(2.0, "p", f"light-{n}", 10_000)
    sim.run(120)
    shares = Counter[str]()
    for one in sim.served:
        if one.at >= 20:
            shares[one.batch.key.topic] += one.batch.size
    assert shares["large"] / shares["small"] == pytest.approx(1.0, rel=0.1)
    for n in range(8):
        assert shares[f"light-{n}"] == pytest.approx(50 * 10_000, rel=0.1)


def test_the_latency_of_a_light_stream_is_bounded_whatever_the_backlog_of_others() -> None:
    """A light stream's batch waits only for a thread and its own response, behind any backlog of busy streams.

    If all streams begin at once, its first batch also waits for one batch of each other stream.
    """
    for streams, batches in ((1, 5000), (500, 10)):
        sim = Simulation(8, {"p": Server(8, noise=0.2)})
        for n in range(streams):
            sim.backlog("p", f"busy-{n}", 100_000, batches=batches)
        sim.every(1.0, "p", "light", 1000)
        sim.run(60)
        light = [one for one in sim.served if one.batch.key.topic == "light"]
        assert len(light) >= 58
        assert max(one.waited for one in light) < streams / 80 + 1.0
        assert max(one.waited for one in light if one.at > 10) < 0.6


def test_a_slow_and_a_dead_destination_leave_a_third_one_its_latency_and_its_rate() -> None:
    """Beside a destination with five seconds a request and an unreachable one, a brisk one delivers at once."""
    servers = {"brisk": Server(100, noise=0.2), "slow": Server(100, service=5.0), "dead": Server(reachable=False)}
    sim = Simulation(8, servers)
    sim.backlog("slow", "busy", 1000)
    sim.backlog("dead", "busy", 1000)
    sim.every(0.05, "brisk", "some", 1000)
    sim.run(120)
    waits = sorted(one.waited for one in sim.served if one.batch.key.project == "brisk" and one.at > 30)
    assert sim.rate(30, 120, "brisk") == pytest.approx(20, rel=0.05)
    assert waits[int(len(waits) * 0.99)] < 0.5
    assert sim.rate(30, 120, "slow") > 0.5
    assert sim.attempts["dead"] < 60


def test_the_same_seed_gives_the_same_history() -> None:
    """The history does not depend on the machine."""
    histories = []
    for _ in range(2):
        sim = Simulation(8, {"p": Server(4, noise=0.5)}, seed=3)
        sim.backlog("p", "busy", 1000)
        sim.run(20)
        histories.append([one.at for one in sim.served])
    assert histories[0] == histories[1]
