"""The memory that a shipping process requests from the system."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.server import null_server
from tests.wire.twins import native

# In its own process, as freed memory of other tests changes what glibc keeps.
_SHIP = """
import resource, sys
from producer import Producer, ProjectConfig
from producer.ship.files.find import Search
from producer.ship.files.plan import plan
from producer.ship.job import ShipJob
from producer.ship.portions import Portion
from producer.ship.sending import PortionSender

port, path = sys.argv[1:]
project = ProjectConfig("p", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", access_key_secret="s")
files = Search([path]).all().files
portion = Portion(plan(files)[0])
with Producer(project) as producer:
    sender = PortionSender(producer, ShipJob(project=project, logstore="l", parser="apache"))
    sender.ship(portion)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    sender.ship(portion)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
_LINE = b'10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a/page HTTP/1.1" 200 2326 "-" "Mozilla/5.0"\n'
_MEGABYTES = 20


@native  # the pure implementations make an object of each part of a line
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of another allocator nothing is promised")
def test_memory_of_a_block_is_used_for_the_next_one(tmp_path: Path) -> None:
    """Lines read by the megabyte do not take new pages from the system each time."""
    file = tmp_path / "access.log"
    file.write_bytes(_LINE * (_MEGABYTES * 1_000_000 // len(_LINE)))
    with null_server() as port:
        command = [sys.executable, "-c", _SHIP, str(port), str(file)]
        taken = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert int(taken.stdout) < 100 * _MEGABYTES
