"""Stored records survive SIGKILL of the producer's process, of the server, and of both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .kill_loop import BATCH, IN_FLIGHT, Outcome, kill_loop, kill_loop_under_faults

#: ``make soak`` runs many more rounds.
SOAK = bool(os.environ.get("PRODUCER_SOAK"))


def check(outcome: Outcome, rounds: int) -> None:
    """Check that no stored record is missing, that duplicates are within the kills' limit, and that streams are in
    order.
    """
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
def test_a_program_prints_a_number_once_its_record_is_stored(
    tmp_path: Path, client: bool, server: bool, rounds: int
) -> None:
    """A program prints a number once its record is stored; after any number of kills all of them are on the server."""
    outcome = kill_loop(tmp_path, rounds, seed=rounds, kill_client=client, kill_server=server)
    check(outcome, rounds)
    print(f"{len(outcome.stored)} stored, {outcome.kills} kills, {outcome.duplicates} duplicates")


#: Few in the test suite; a soak runs more.
FAULTY_ROUNDS = 60 if SOAK else 6


@pytest.mark.timeout(3600 if SOAK else 180)
@pytest.mark.parametrize("dead_letters", [False, True], ids=["without dead letters", "with dead letters"])
def test_under_refusals_and_kills_a_record_arrives_or_was_refused_alone(tmp_path: Path, dead_letters: bool) -> None:
    """With random 413, a stored record that does not arrive was refused in a request of its own, and is a dead letter
    if there are any.
    """
    outcome, server = kill_loop_under_faults(tmp_path, FAULTY_ROUNDS, seed=1 + dead_letters, dead_letters=dead_letters)
    assert server.refused, "no request was refused: the loop proves nothing"
    assert server.unanswered
    assert outcome.recoveries > 0
    absent = outcome.stored - outcome.counts.keys()
    assert absent <= outcome.refused_alone
    assert set(outcome.buried) <= outcome.refused_alone
    if dead_letters:
        assert absent <= set(outcome.buried)
    print(
        f"{len(outcome.stored)} stored, {outcome.kills} kills, {server.refused} refusals, {len(absent)} refused alone"
    )


@pytest.mark.timeout(3600 if SOAK else 180)
def test_under_refusals_and_kills_idempotent_streams_store_nothing_twice(tmp_path: Path) -> None:
    """With lost responses, unconfirmed batches that are too large, and kills, each record is there once, in order."""
    outcome, server = kill_loop_under_faults(tmp_path, FAULTY_ROUNDS, seed=3, idempotent=True, dead_letters=True)
    assert server.refused
    assert server.unanswered
    assert outcome.recoveries > 0
    assert not outcome.missing
    assert set(outcome.buried) <= outcome.refused_alone
    assert outcome.duplicates <= outcome.untold * BATCH
    if not outcome.untold:
        for numbers in outcome.arrived.values():
            assert numbers == sorted(set(numbers))
    print(f"{len(outcome.stored)} stored, {outcome.kills} kills, {server.refused} refusals, {outcome.untold} untold")


#: A spillable channel over each kind of file channel, and the kinds that are not the default.
_OTHER_CHANNELS = ["os", "0.02", "spillable-commit", "spillable-os", "spillable-0.02"]


@pytest.mark.timeout(3600 if SOAK else 180)
@pytest.mark.parametrize("channel", _OTHER_CHANNELS if SOAK else _OTHER_CHANNELS[2:3])
def test_every_record_whose_future_was_stored_arrives_or_was_refused_alone(tmp_path: Path, channel: str) -> None:
    """Every record whose future was stored arrives, or was refused alone."""
    rounds = 80 if SOAK else 4
    outcome, server = kill_loop_under_faults(tmp_path, rounds, seed=7, dead_letters=True, channel=channel)
    assert outcome.stored
    assert not outcome.missing
    assert outcome.recoveries > 0
    assert set(outcome.buried) <= outcome.refused_alone
    print(f"{len(outcome.stored)} stored, {outcome.kills} kills, {server.refused} refusals, {outcome.untold} untold")
