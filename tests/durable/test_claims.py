"""One channel serves one producer at a time."""

from __future__ import annotations

import os

import pytest

from producer import ConfigError
from producer.channels import MemoryChannel
from producer.durable import claims


def test_a_channel_is_one_producers_until_it_is_given_up() -> None:
    """A second claim is refused, and takes none of the others; afterwards anybody may have it."""
    one, other = MemoryChannel(), MemoryChannel()
    claims.claim(one, None)
    with pytest.raises(ConfigError, match="must belong to no other producer"):
        claims.claim(other, one)
    claims.claim(other)
    claims.give_up(one, other, None)
    claims.claim(one, other)
    claims.give_up(one, other)


def test_a_fork_in_the_middle_of_a_claim_leaves_the_child_free_to_claim() -> None:
    """The lock that a thread of the parent held is not waited for in the child."""
    with claims._claiming:
        child = os.fork()
        if child == 0:  # no pytest in here
            os._exit(0 if claims._claiming.acquire(blocking=False) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
