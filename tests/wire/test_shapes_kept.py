"""What an encoder keeps of the shapes of logs: bounded in bytes, and by what is used."""

from __future__ import annotations

import tracemalloc

from producer.wire.log_group import LogEncoder
from producer.wire.shape import MAX_SHAPES_BYTES

USUAL = {"level": "INFO", "message": "hello", "host": "web-1"}


def _odd(number: int, fields: int = 64, length: int = 200) -> dict[str, str]:
    return {f"{number}-{field}-".ljust(length, "x"): "v" * (field % 7) for field in range(fields)}


def test_new_names_in_each_log_keep_no_more_than_the_bound(without_coverage: None) -> None:
    """Thousands of logs with names of their own, some of them sent often: the encoder keeps a few megabytes."""
    encoder = LogEncoder()
    encoder.encode(USUAL, 1)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(120):
        for _ in range(9):
            encoder.encode(_odd(number), 1)
    for number in range(1000, 3000):
        encoder.encode(_odd(number), 1)
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert encoder.shapes
    assert kept < 2 * MAX_SHAPES_BYTES


def test_a_usual_log_becomes_known_however_many_shapes_were_seen_before() -> None:
    """A shape that is used takes the place of those that are not."""
    encoder = LogEncoder()
    for number in range(300):
        for _ in range(9):
            encoder.encode({f"{number}": "v"}, 1)
    assert len(encoder.shapes) == 256
    for _ in range(256):
        encoder.encode(USUAL, 1)
    assert tuple(USUAL) in encoder.shapes
    assert len(encoder.shapes) <= 256


def test_a_shape_that_is_used_is_not_given_up_for_one_that_comes_later() -> None:
    """The usual log stays known while others come and go."""
    encoder = LogEncoder()
    for _ in range(9):
        encoder.encode(USUAL, 1)
    for number in range(260):
        for _ in range(9 if number < 255 else 256):
            encoder.encode({f"{number}": "v"}, 1)
        encoder.encode(USUAL, 1)
        assert tuple(USUAL) in encoder.shapes


def test_lengths_are_kept_again_once_shapes_that_filled_the_room_are_not_used() -> None:
    """Room that others have filled with lengths is given back at the turn of a second, if they are not used."""
    encoder = LogEncoder()
    for _ in range(9):
        encoder.encode({"filler": "v"}, 1)
        encoder.encode(USUAL, 1)
    encoder._room.left = 0
    encoder.encode({**USUAL, "message": "x" * 99}, 1)
    assert encoder._room.short
    encoder.encode(USUAL, 2)  # marks what is in use
    encoder._room.short = True
    encoder.encode(USUAL, 3)
    assert ("filler",) not in encoder.shapes
    assert tuple(USUAL) in encoder.shapes
    assert encoder._room.left > 0
