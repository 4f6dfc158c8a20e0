"""One channel serves one producer at a time."""

from __future__ import annotations

import os

import pytest

from producer import ConfigError
from producer.channels import MemoryChannel
from producer.durable import channel_owners


def test_a_second_claim_is_refused_and_takes_none_of_the_channels_after_the_release_it_succeeds() -> None:
    """A second claim is refused, and takes none of the channels; after the release it succeeds."""
    one, other = MemoryChannel(), MemoryChannel()
    channel_owners.claim(one, None)
    with pytest.raises(ConfigError, match="must belong to no other producer"):
        channel_owners.claim(other, one)
    channel_owners.claim(other)
    channel_owners.release(one, other, None)
    channel_owners.claim(one, other)
    channel_owners.release(one, other)


def test_a_fork_in_the_middle_of_a_claim_leaves_the_child_free_to_claim() -> None:
    """A child does not wait for a lock that a thread of the parent held."""
    with channel_owners._claiming:
        child = os.fork()
        if child == 0:  # no pytest in the child
            os._exit(0 if channel_owners._claiming.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
