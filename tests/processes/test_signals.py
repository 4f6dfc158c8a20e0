"""With ``install_signal_handlers``, accepted records arrive on SIGTERM and SIGINT; then the signal acts."""

import signal
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from producer.server import LogHubServer

from .child import LOGSTORE, PROJECT, Child, Ended, messages, numbered, until

Start = Callable[..., Child]


@pytest.mark.parametrize(
    ("number", "mode", "code"), [(signal.SIGTERM, "default", -signal.SIGTERM), (signal.SIGINT, "own", 7)]
)
def test_a_signal_under_load_loses_nothing_that_was_accepted(
    start: Start, server: LogHubServer, tmp_path: Path, number: signal.Signals, mode: str, code: int
) -> None:
    """Each record accepted from three threads is stored once; then the previous handler runs or the signal kills."""
    path = tmp_path / "accepted"
    path.write_bytes(bytes(24))
    child = start("signalled.py", path, mode)
    child.wait_for("sending")
    until(lambda: min(struct.unpack("<3q", path.read_bytes())) > 2000, seconds=20)
    child.signal(number)
    ended = child.end()
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert (f"handled={number}" in ended.stdout) == (mode == "own")
    stored = defaultdict(list)
    for log in server.logs(PROJECT, LOGSTORE):
        stored[int(log.topic)].append(int(str(log.fields["n"])))
    for thread, accepted in enumerate(struct.unpack("<3q", path.read_bytes())):
        numbers = sorted(stored[thread])
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= accepted


def test_a_pool_that_is_terminated_loses_nothing(run: Callable[..., Ended], server: LogHubServer) -> None:
    """Workers terminated at the end of a Pool's block deliver their accepted records, with the initializer."""
    ended = run("pooled.py")
    assert ended.number("sent") == 20, ended.stderr
    assert messages(server) == numbered("record", 20)
