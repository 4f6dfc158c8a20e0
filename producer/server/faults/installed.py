"""The faults of one server: which are installed, whom they harm, and how often."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping

from ..messages import ApiRequest
from .actions import Action, Fault, Plan, combine


class InstalledFault:
    """A fault at work, as :meth:`Faults.add` returned it.

    :ivar number: 1 for the first one of a server.
    :ivar label: what it does, for people.
    :ivar wanted: what the requests that it sees have in common: ``project``, ``logstore``, ``operation``.
    """

    def __init__(
        self,
        fault: Fault,
        times: int | None,
        chance: Callable[[], bool],
        wanted: Mapping[str, str],
        name: tuple[int, str],
    ) -> None:
        self.number, self.label = name
        self.wanted = wanted
        self._fault = fault
        self._left = times
        self._chance = chance
        self._fired = 0

    @property
    def left(self) -> int | None:
        """How many requests it will still harm at most; None for no end."""
        return self._left

    @property
    def fired(self) -> int:
        """How many requests it has harmed so far."""
        return self._fired

    def action_for(self, request: ApiRequest) -> Action | None:
        """What it does to ``request``. Called by the server's thread only, so its counts need no lock."""
        matches = all(getattr(request, name) == value for name, value in self.wanted.items())
        if self._left == 0 or not matches or not self._chance():
            return None
        action = self._fault(request)
        if action is not None:
            self._fired += 1
            self._left = None if self._left is None else self._left - 1
        return action


class Faults:
    """The faults of one server. Its methods may be called from any thread."""

    def __init__(self) -> None:
        # Guards _installed: tests add and clear while the server's thread reads.
        self._lock = threading.Lock()
        self._installed: list[InstalledFault] = []
        self._numbers = itertools.count(1)

    def add(
        self,
        fault: Fault,
        *,
        times: int | None = None,
        project: str | None = None,
        logstore: str | None = None,
        operation: str | None = None,
        probability: float = 1.0,
        seed: int | None = None,
        label: str | None = None,
    ) -> InstalledFault:
        """Install ``fault``; it sees the requests that match all that is given here.

        :param times: how many requests it harms before it is spent; None for no end.
        :param project: requests to this project only.
        :param logstore: requests to this logstore only.
        :param operation: these requests only, such as ``"PutLogs"``.
        :param probability: the chance that it sees a request that matches, 0.0 to 1.0.
        :param seed: makes that chance repeatable.
        :param label: what it does, for people; by default the name of the function.
        """
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability is {probability}: it must be from 0.0 to 1.0")
        wanted = {"project": project and project.lower(), "logstore": logstore, "operation": operation}
        chosen = {name: value for name, value in wanted.items() if value is not None}
        name = (next(self._numbers), _name_of(fault) if label is None else label)
        installed = InstalledFault(fault, times, _chance(probability, seed), chosen, name)
        with self._lock:
            self._installed.append(installed)
        return installed

    def remove(self, installed: InstalledFault) -> None:
        """Uninstall one; a fault that was cleared already is left in peace."""
        with self._lock:
            self._installed = list(filter(lambda other: other is not installed, self._installed))

    def installed(self) -> list[InstalledFault]:
        """Those that are installed, in the order in which they were."""
        with self._lock:
            return list(self._installed)

    def clear(self) -> None:
        """Uninstall all."""
        with self._lock:
            self._installed = []

    def plan(self, request: ApiRequest) -> Plan:
        """What shall go wrong with ``request``."""
        actions = [fault.action_for(request) for fault in self.installed()]
        return combine(action for action in actions if action is not None)


def _name_of(fault: Fault) -> str:
    """Of a function that another one made, the other one's."""
    return str(getattr(fault, "__qualname__", repr(fault))).partition(".<locals>")[0]


def _chance(probability: float, seed: int | None) -> Callable[[], bool]:
    if probability >= 1.0:
        return lambda: True
    dice = random.Random(seed)  # noqa: S311 - chance for tests, not for secrets
    return lambda: dice.random() < probability
