"""Random histories of a machine, and the shortest one that shows what went wrong.

A machine is a class whose methods marked as :func:`rule` are what may happen; each names the choices of its arguments.
A history takes one rule after the other at random. It is a few times faster than one of Hypothesis, which matters where
ten thousand are wanted, and is told by a seed alone. Not all rules take part in each history: those that do happen the
more often, and in a row.
"""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

#: Draws a value; with None as its random numbers the simplest one.
Choice = Callable[[Random | None], Any]
_Method = TypeVar("_Method", bound=Callable[..., None])

#: The share of the rules that take part in a history.
TAKING_PART = 0.7
#: A failing history is played so often at most to find a shorter one.
TRIES = 600


def integers(low: int, high: int) -> Choice:
    """A number from ``low`` to ``high``; its simplest is the least."""
    return lambda random: low if random is None else random.randint(low, high)


def sampled_from(values: Sequence[Any]) -> Choice:
    """One of these; the simplest is the first."""
    return lambda random: values[0] if random is None else random.choice(values)


def sets(of: Choice, most: int) -> Choice:
    return lambda random: set() if random is None else {of(random) for _ in range(random.randint(0, most))}


def lists(of: Choice, least: int, most: int) -> Choice:
    return lambda random: [of(random) for _ in range(least if random is None else random.randint(least, most))]


@dataclass(frozen=True, slots=True)
class Rule:
    """Something that may happen.

    :ivar choices: of its arguments, by name.
    :ivar possible: whether it can happen now, asked of the machine.
    """

    name: str
    choices: dict[str, Choice]
    possible: Callable[[Any], object]


def rule(when: Callable[[Any], object] = lambda _machine: True, **choices: Choice) -> Callable[[_Method], _Method]:
    """Mark a method as something that may happen."""

    def mark(method: _Method) -> _Method:
        method.rule = Rule(method.__name__, choices, when)  # type: ignore[attr-defined]
        return method

    return mark


def rules_of(kind: type) -> list[Rule]:
    """What may happen to machines of this kind, by name."""
    methods = [method for _, method in inspect.getmembers(kind, inspect.isfunction)]
    return [method.rule for method in methods if hasattr(method, "rule")]


#: A rule's name and its arguments.
Step = tuple[str, dict[str, Any]]


class Machine:
    def check(self) -> None:
        """Raise AssertionError unless everything holds that always does."""

    def finish(self) -> None:
        """Raise AssertionError unless everything is as it must be in the end."""

    def give_back(self) -> None:
        """Whatever happened: give everything back."""


class HistoryError(AssertionError):
    """A history that went wrong; its text tells how to play it again."""

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
    """Let these things happen to a new machine, leaving out what is not possible; what went wrong."""
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
    except Exception as error:  # noqa: BLE001  # a defect of the machine is told like one that it finds
        return steps, error
    finally:
        machine.give_back()
    return steps, None


def random_history(kind: type[Machine], seed: int, length: int) -> tuple[list[Step], Exception | None]:
    """The history of this seed, and what went wrong in it."""
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
    """A part of a history that goes wrong too, with the simplest arguments that do, as far as :data:`TRIES` tell."""
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
