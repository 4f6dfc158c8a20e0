"""Play random histories of a machine, and shrink a failing one.

A machine is a class whose methods marked by :func:`rule` are the possible steps. Each rule names the choices for its
arguments. A history takes rules at random; its seed identifies it. It is a few times faster than a history of
Hypothesis, which matters for ten thousand of them. Only a part of the rules is in each history: these are taken more
often, and in a row.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

#: Draws a value; with None for the random numbers, the simplest one.
Choice = Callable[[Random | None], Any]
_Method = TypeVar("_Method", bound=Callable[..., None])

#: The share of the rules that take part in a history.
TAKING_PART = 0.7
#: Maximum number of times that a failing history is replayed to shrink it.
TRIES = 600


def integers(low: int, high: int) -> Choice:
    """Choose a number from ``low`` to ``high``; the simplest is ``low``."""
    return lambda random: low if random is None else random.randint(low, high)


def sampled_from(values: Sequence[Any]) -> Choice:
    """Choose one of the values; the simplest is the first."""
    return lambda random: values[0] if random is None else random.choice(values)


def sets(of: Choice, most: int) -> Choice:
    return lambda random: set() if random is None else {of(random) for _ in range(random.randint(0, most))}


def lists(of: Choice, least: int, most: int) -> Choice:
    return lambda random: [of(random) for _ in range(least if random is None else random.randint(least, most))]


@dataclass(frozen=True, slots=True)
class Rule:
    """A possible step of a machine.

    :ivar choices: the choices for its arguments, by name.
    :ivar possible: a function of the machine; true if the step is possible.
    """

    name: str
    choices: dict[str, Choice]
    possible: Callable[[Any], object]


def rule(when: Callable[[Any], object] = lambda _machine: True, **choices: Choice) -> Callable[[_Method], _Method]:
    """Mark a method as a possible step."""

    def mark(method: _Method) -> _Method:
        method.rule = Rule(method.__name__, choices, when)  # type: ignore[attr-defined]
        return method

    return mark


def rules_of(kind: type) -> list[Rule]:
    """Return the rules of a class of machines, by name."""
    methods = [method for _, method in inspect.getmembers(kind, inspect.isfunction)]
    return [method.rule for method in methods if hasattr(method, "rule")]


#: A rule's name and its arguments.
Step = tuple[str, dict[str, Any]]


class Machine:
    def check(self) -> None:
        """Raise AssertionError unless every invariant holds."""

    def finish(self) -> None:
        """Raise AssertionError unless the final state is correct."""

    def give_back(self) -> None:
        """Release all resources, whatever happened."""


class HistoryError(AssertionError):
    """Raised when a history fails; its text is the code that replays it."""

    def __init__(self, kind: type, seed: int, steps: Sequence[Step], error: BaseException) -> None:
        calls = [
            f"machine.{name}({', '.join(f'{k}={v!r}' for k, v in sorted(arguments.items()))})"
            for name, arguments in steps
        ]
        super().__init__(
            "\n".join([f"{error!r} in the history", f"machine = {kind.__name__}()  # seed {seed}", *calls])
        )
        self.steps = list(steps)


def play(kind: type[Machine], steps: Collection[Step]) -> Exception | None:
    """Play steps on a new machine, without the impossible ones; return the error, or None."""
    rules = {each.name: each for each in rules_of(kind)}
    chosen = (step for step in steps)
    return _play(kind, lambda machine: next((s for s in chosen if rules[s[0]].possible(machine)), None))[1]


def _play(kind: type[Machine], following: Callable[[Machine], Step | None]) -> tuple[list[Step], Exception | None]:
    steps: list[Step] = []
    machine = kind()
    try:
        machine.check()
        while (step := following(machine)) is not None:
            steps.append(step)
            getattr(machine, step[0])(**step[1])
            machine.check()
        machine.finish()
    except Exception as error:  # noqa: BLE001  # a defect of the machine is reported like a failure
        return steps, error
    finally:
        machine.give_back()
    return steps, None


def random_history(kind: type[Machine], seed: int, length: int) -> tuple[list[Step], Exception | None]:
    """Return the history of a seed, and its error."""
    random = Random(seed)
    rules = rules_of(kind)
    taking_part = [each for each in rules if random.random() < TAKING_PART] or rules

    def following(machine: Machine) -> Step | None:
        nonlocal length
        possible = [each for each in taking_part if each.possible(machine)]
        length -= 1
        if length < 0 or not possible:
            return None
        chosen = random.choice(possible)
        return chosen.name, {name: choice(random) for name, choice in chosen.choices.items()}

    return _play(kind, following)


def run(kind: type[Machine], seeds: Collection[int], length: int) -> None:
    for seed in seeds:
        steps, error = random_history(kind, seed, length)
        if error is not None:
            steps, error = shorter(kind, steps, error)
            raise HistoryError(kind, seed, steps, error) from error


def shorter(kind: type[Machine], steps: list[Step], error: Exception) -> tuple[list[Step], Exception]:
    """Return a shorter part of a failing history, with the simplest arguments that fail, within :data:`TRIES`."""
    tries = 0

    def wrong(candidate: list[Step]) -> bool:
        nonlocal steps, error, tries
        tries += 1
        found = play(kind, candidate) if tries <= TRIES else None
        if found is None:
            return False
        steps, error = candidate, found
        return True

    size = len(steps)
    while size:
        start = 0
        while start < len(steps):
            if not wrong(steps[:start] + steps[start + size :]):
                start += size
        size //= 2
    rules = {each.name: each for each in rules_of(kind)}
    for place in range(len(steps)):
        for name, choice in rules[steps[place][0]].choices.items():
            before, arguments = steps[place]
            wrong([*steps[:place], (before, arguments | {name: choice(None)}), *steps[place + 1 :]])
    return steps, error
