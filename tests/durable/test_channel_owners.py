"""One channel serves one producer at a time."""

from __future__ import annotations

import os

import pytest

from producer import ConfigError
from producer.channels import MemoryChannel
from producer.durable import channel_owners


def test_a_channel_is_one_producers_until_it_is_given_up() -> None:
    """A second claim is refused, and takes none of the others; afterwards anybody may have it."""
    one, other = MemoryChannel(), MemoryChannel()
    channel_owners.claim(one, None)
    with pytest.raises(ConfigError, match="must belong to no other producer"):
        channel_owners.claim(other, one)
    channel_owners.claim(other)
    channel_owners.give_up(one, other, None)
    channel_owners.claim(one, other)
    channel_owners.give_up(one, other)


def test_a_fork_in_the_middle_of_a_claim_leaves_the_child_free_to_claim() -> None:
    """The lock that a thread of the parent held is not waited for in the child."""
    with channel_owners._claiming:
        child = os.fork()
        if child == 0:  # no pytest in here
            os._exit(0 if channel_owners._claiming.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
