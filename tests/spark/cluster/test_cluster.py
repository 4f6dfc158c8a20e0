"""The cluster of the tests works as they need it; and an environment with the SDK can come with a job."""

from pathlib import Path

from .cluster import Cluster

PROGRAMS = Path(__file__).parent / "programs"
WEBLOG = Path(__file__).parent / "weblog.py"


def test_two_workers_are_two_hosts(cluster: Cluster) -> None:
    """The two workers are two hosts for Spark, as a speculative copy needs."""
    assert len(cluster.workers) == len(cluster.hosts) == 2
    assert len(set(cluster.hosts)) == 2


def test_worker_that_was_killed_is_replaced(cluster: Cluster) -> None:
    """A worker that was killed is replaced by a new, registered one."""
    before = cluster.workers
    cluster.kill_worker(1)
    cluster.restart_worker(1)
    assert cluster.workers[0] == before[0]
    assert cluster.workers[1] != before[1]
