"""Celery's ``prefork`` workers end by ``os._exit``, without Python's exit functions, and lose no log."""

import json
import subprocess
import sys
from pathlib import Path

from producer.testing import LogHubServer

PATIENCE = 120
PROGRAM = """
import json, os, pathlib, sys, threading, time
from celery import Celery
from celery.signals import worker_ready
from producer import Producer, ProducerConfig, ProjectConfig

# Only the end of a worker sends what it has: nothing lingers so long.
producer = Producer(ProjectConfig("my-project", **json.loads(sys.argv[1])), config=ProducerConfig(linger_ms=600_000))
app = Celery("shop", broker="memory://", backend="cache+memory://")
app.conf.worker_max_tasks_per_child = 1

@app.task
def pay(order):
    producer.send("my-project", "payments", {"order": str(order), "pid": str(os.getpid())})
    pathlib.Path(sys.argv[2], str(order)).touch()

def end_when_done():
    while len(os.listdir(sys.argv[2])) < 3:
        time.sleep(0.02)
    app.control.shutdown()

@worker_ready.connect
def begin(**_):
    for order in range(3):
        pay.delay(order).forget()
    threading.Thread(target=end_when_done, daemon=True).start()

app.worker_main(["worker", "--pool=prefork", "--concurrency=1", "--loglevel=ERROR", "--without-mingle"])
"""


def test_each_log_arrives_exactly_once_from_its_own_process_after_single_task_workers_and_at_shutdown(
    tmp_path: Path,
) -> None:
    """Each log arrives exactly once, from its own process, after single-task workers and at shutdown."""
    with LogHubServer() as server:
        command = [sys.executable, "-c", PROGRAM, json.dumps(server.connection), str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        logs = [log.fields for log in server.logs("my-project", "payments")]
    assert sorted(str(log["order"]) for log in logs) == ["0", "1", "2"], ended.stderr
    assert len({log["pid"] for log in logs}) == 3
