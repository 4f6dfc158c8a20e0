"""Room: capacity in events and bytes, granted first come, first served."""

from hypothesis import given
from hypothesis import strategies as st

from producer.channels.room import Claim, Room


class Stored:
    def __init__(self, events: int = 0, size: int = 0) -> None:
        self.events, self.size = events, size

    def __call__(self) -> tuple[int, int]:
        return self.events, self.size


def test_capacity_is_granted_up_to_the_last_event_and_byte() -> None:
    """Capacity is granted up to the last event and byte."""
    room = Room(3, 100, Stored())
    first, too_many, too_large, last = Claim(2, 60), Claim(2, 0), Claim(0, 41), Claim(1, 40)
    assert room.grant(first)
    for claim in (too_many, too_large):
        assert not room.grant(claim)
        room.drop(claim)
    assert room.grant(last)
    assert room.used == (3, 100)


def test_without_a_byte_capacity_only_events_count() -> None:
    """Without a byte capacity only events count."""
    room = Room(2, None, Stored())
    assert room.could_hold(Claim(2, 10**15))
    large, one = Claim(2, 10**15), Claim(1, 0)
    assert room.grant(large)
    assert not room.grant(one)


def test_a_claim_above_the_limits_can_never_fit() -> None:
    """A claim above the limits can never fit."""
    room = Room(3, 100, Stored(3, 100))
    assert room.could_hold(Claim(3, 100))
    assert not room.could_hold(Claim(4, 0))
    assert not room.could_hold(Claim(1, 101))


def test_recovered_content_above_the_limits_blocks_claims_until_it_is_less() -> None:
    """Recovered content above the limits blocks claims until it is less."""
    stored, claim = Stored(5, 50), Claim(1, 5)
    room = Room(2, 10, stored)
    assert not room.grant(claim)
    stored.events, stored.size = 1, 5
    assert room.grant(claim)


def test_claims_are_granted_in_order() -> None:
    """Claims are granted in order."""
    stored, large, small = Stored(10), Claim(8, 0), Claim(1, 0)
    room = Room(10, None, stored)
    assert not room.grant(large)
    stored.events = 5
    assert not room.grant(small)
    assert not room.grant(large)
    stored.events = 2
    assert not room.grant(small)
    assert room.grant(large)
    assert (room.used, room.waiting) == ((10, 0), 1)
    stored.events = 1
    assert room.grant(small)
    assert room.waiting == 0


def test_a_dropped_claim_lets_the_next_one_through() -> None:
    """A dropped claim lets the next one through."""
    room, large, small = Room(10, None, Stored(5)), Claim(8, 0), Claim(5, 0)
    assert not room.grant(large)
    assert not room.grant(small)
    room.drop(large)
    assert room.grant(small)


def test_room_that_is_dropped_is_free_once() -> None:
    """Dropping a claim twice frees it once."""
    room, claim = Room(10, 100, Stored()), Claim(4, 40)
    assert room.grant(claim)
    assert room.grant(claim)
    assert room.used == (4, 40)
    room.drop(claim)
    room.drop(claim)
    assert room.used == (0, 0)


def test_a_claim_that_is_over_holds_up_no_other() -> None:
    """A claim marked over does not block the line."""
    room, claim, waiting = Room(3, None, Stored()), Claim(3, 0), Claim(3, 0)
    room.grant(claim)
    assert not room.grant(waiting)
    waiting.over = True
    last = Claim(1, 0)
    assert not room.grant(last)
    room.drop(claim)
    assert room.grant(last)
    assert (room.used, room.waiting) == ((1, 0), 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 30)), max_size=40))
def test_any_history_keeps_capacity_in_use_equal_to_stored_plus_granted_within_limits_and_in_order(
    steps: list[tuple[int, int, int]],
) -> None:
    """Any history keeps capacity in use equal to stored plus granted, within limits and in order."""
    stored = Stored()
    room = Room(10, 60, stored)
    claims: list[Claim] = []
    for step, events, size in steps:
        if step == 0:
            claims.append(Claim(events, size))
            room.grant(claims[-1])
        elif step == 1 and claims:
            room.drop(claims.pop(events % len(claims)))
        elif step == 2 and claims:
            claim = claims.pop(events % len(claims))
            if claim.granted:
                stored.events, stored.size = stored.events + claim.events, stored.size + claim.size
            room.drop(claim)
        else:
            stored.events, stored.size = max(0, stored.events - events), max(0, stored.size - size)
        for claim in claims:
            room.grant(claim)
        granted = [claim for claim in claims if claim.granted]
        used = sum(claim.events for claim in granted), sum(claim.size for claim in granted)
        assert room.used == (stored.events + used[0], stored.size + used[1])
        assert room.used[0] <= 10
        assert room.used[1] <= 60
        assert room.waiting == len(claims) - len(granted)
