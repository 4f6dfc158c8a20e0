"""``make run KEEP=1`` keeps the server running, and prints its address."""

import io
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from rich.console import Console

from examples.ship_demo.demo import keep_up
from producer import Producer, ProjectConfig
from producer.cli import main
from producer.server import LogHubServer
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


def test_the_server_is_kept_up_until_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    """The server's address and a command for it are printed; Ctrl-C ends it without a traceback."""
    out = io.StringIO()
    shown: list[str] = []

    def look() -> None:
        try:
            eventually(lambda: "access-key-secret" in out.getvalue())
            found = re.search(r"producer (pull .*)", out.getvalue())
            assert found is not None
            assert main(found[1].split()) == 0
            shown.append(capsys.readouterr().out)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with LogHubServer() as server:
        keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
        with Producer(ProjectConfig("demo", endpoint=server.endpoint, **keys)) as producer:
            producer.send("demo", "machine-logs", {"content": "here"})
        looking = threading.Thread(target=look)
        looking.start()
        keep_up(server, Console(file=out, soft_wrap=True, highlight=False, width=80))
        looking.join()
        assert f"{server.endpoint}/console" in out.getvalue()
    assert '"content": "here"' in shown[0]


@pytest.mark.parametrize(("keep", "kept"), [("KEEP=1", True), ("KEEP=0", False), ("KEEP=", False)])
def test_make_asks_for_it(keep: str, kept: bool) -> None:
    """Only ``KEEP=1`` keeps the server running."""
    told = subprocess.run(["make", "-n", "run", keep], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [line] = [line for line in told.splitlines() if "examples.ship_demo" in line]
    assert ("--keep" in line) is kept
