"""What was stored survives SIGKILL of the producer's process, of the server, and of both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .kill_loop import IN_FLIGHT, Outcome, kill_loop

#: ``make soak`` asks for many more rounds.
SOAK = bool(os.environ.get("PRODUCER_SOAK"))


def check(outcome: Outcome, rounds: int) -> None:
    """Nothing stored is missing; no more is duplicated than the kills found in flight; streams keep their order."""
    assert outcome.kills == rounds
    assert outcome.stored
    assert not outcome.missing
    assert outcome.recoveries > 0, "no kill left anything to recover: the loop proves nothing"
    assert outcome.duplicates <= rounds * IN_FLIGHT
    for numbers in outcome.arrived.values():
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts)


@pytest.mark.timeout(3600 if SOAK else 180)
@pytest.mark.parametrize(
    ("client", "server", "rounds"),
    [(True, False, 200 if SOAK else 15), (False, True, 50 if SOAK else 4), (True, True, 50 if SOAK else 4)],
    ids=["producer killed", "server killed", "both killed"],
)
def test_every_stored_record_arrives_whoever_is_killed(tmp_path: Path, client: bool, server: bool, rounds: int) -> None:
    """A program prints a number once its record is stored; after any number of kills all of them are on the server."""
    outcome = kill_loop(tmp_path, rounds, seed=rounds, kill_client=client, kill_server=server)
    check(outcome, rounds)
    print(f"{len(outcome.stored)} stored, {outcome.kills} kills, {outcome.duplicates} duplicates")
