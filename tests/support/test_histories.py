"""Random histories are repeatable, find failures, and report them in the shortest form."""

from random import Random

import pytest

from tests.support.histories import (
    HistoryError,
    Machine,
    integers,
    lists,
    play,
    random_history,
    rule,
    rules_of,
    run,
    sampled_from,
    sets,
)

SEEN: list[str] = []


class Counter(Machine):
    """A machine that fails if 7 or more is added after a reset."""

    def __init__(self) -> None:
        self.number, self.was_reset = 0, False
        SEEN.append("made")

    @rule(amount=integers(1, 9), text=sampled_from(["a", "b"]))
    def add(self, amount: int, text: str) -> None:
        self.number += amount
        assert not (self.was_reset and amount >= 7), "too much"

    @rule(lambda self: self.number)
    def reset(self) -> None:
        assert self.number
        self.number, self.was_reset = 0, True

    @rule()
    def nothing(self) -> None:
        pass

    def check(self) -> None:
        assert self.number >= 0

    def finish(self) -> None:
        SEEN.append("finished")

    def give_back(self) -> None:
        SEEN.append("given back")


class Fine(Counter):
    """A machine that cannot fail: it adds too little."""

    @rule(amount=integers(1, 6))
    def add(self, amount: int) -> None:  # type: ignore[override]
        super().add(amount, "a")


def test_a_seed_tells_the_whole_history() -> None:
    """The same seed gives the same steps and outcome, within the length; other seeds give others."""
    histories = [random_history(Counter, seed, 20) for seed in range(30)]
    assert [steps for steps, _ in histories] == [random_history(Counter, seed, 20)[0] for seed in range(30)]
    assert len({str(steps) for steps, _ in histories}) > 15
    assert max(len(steps) for steps, _ in histories) == 20
    assert any(error for _, error in histories)


def test_a_reset_at_zero_never_happens_some_histories_omit_some_rules() -> None:
    """A reset at zero never happens; some histories omit some rules."""
    assert [each.name for each in rules_of(Counter)] == ["add", "nothing", "reset"]
    used = {frozenset(name for name, _ in random_history(Fine, seed, 40)[0]) for seed in range(40)}
    assert len(used) > 3


def test_a_failure_is_reported_with_its_three_steps_and_their_simplest_arguments() -> None:
    """A failure is reported with its three steps and their simplest arguments, as code that replays it."""
    with pytest.raises(HistoryError) as caught:
        run(Counter, range(100), 40)
    short = caught.value.steps
    assert [name for name, _ in short] == ["add", "reset", "add"]
    assert short[0][1] == {"amount": 1, "text": "a"}
    assert short[2][1]["amount"] >= 7
    assert "machine.add(amount=1, text='a')\nmachine.reset()\nmachine.add(" in str(caught.value)
    assert "too much" in str(caught.value)
    assert isinstance(play(Counter, short), AssertionError)
    assert play(Counter, short[:2]) is None


def test_every_machine_is_finished_and_given_back() -> None:
    """A machine is finished if nothing failed, and released in any case."""
    SEEN.clear()
    run(Fine, range(5), 10)
    assert SEEN == ["made", "finished", "given back"] * 5
    SEEN.clear()
    play(Counter, [("add", {"amount": 1, "text": "a"}), ("reset", {}), ("add", {"amount": 9, "text": "a"})])
    assert SEEN == ["made", "given back"]


def test_choices_stay_within_their_bounds() -> None:
    """Choices, and their simplest values, stay within their bounds."""
    random = Random(1)
    for _ in range(100):
        assert 2 <= integers(2, 4)(random) <= 4
        assert len(sets(integers(0, 9), 3)(random)) <= 3
        assert 1 <= len(lists(integers(0, 9), 1, 3)(random)) <= 3
        assert sampled_from("ab")(random) in "ab"
    assert [integers(2, 4)(None), sets(integers(0, 9), 3)(None), sampled_from("ab")(None)] == [2, set(), "a"]
    assert lists(integers(3, 9), 2, 3)(None) == [3, 3]
