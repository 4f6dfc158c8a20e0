"""A fork while streams know open batches leaves the child's streams working, whatever lock a thread held."""

from collections.abc import Callable

import pytest

from producer.server import LogHubServer

from .child import Ended, messages, numbered


@pytest.mark.parametrize("mode", ["open", "sealing"])
def test_a_child_sends_by_a_handle_whose_batch_was_open_at_the_fork(
    mode: str, run: Callable[..., Ended], server: LogHubServer
) -> None:
    """A parent's thread holds the locks or seals a batch: the child waits for none, and each record is sent once."""
    ended = run("open_records.py", mode)
    assert ended.number("child_status") == 0, ended.stderr
    assert {name: ended.number(name) for name in ("pending", "own", "abandoned", "sent")} == {
        "pending": 300,
        "own": 1,
        "abandoned": 300,
        "sent": 600,
    }
    assert messages(server) == sorted(numbered("child", 300) + numbered("early", 300) + numbered("later", 300))
