"""The installed faults of one server: which requests each affects, and how often."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

from ...runtime.locks import Lock
from ..messages import ApiRequest
from .actions import Action, Fault, Plan, combine


class InstalledFault:
    """An installed fault, as :meth:`Faults.add` returns it.

    :ivar number: 1 for the first fault of a server.
    :ivar label: description for people.
    :ivar wanted: the ``project``, ``logstore`` and ``operation`` that a request must have.
    :ivar left: how many more requests it may affect; None if unlimited.
    :ivar fired: the number of requests that it has affected.
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
        self._chance = chance
        self.left = times
        self.fired = 0

    def action_for(self, request: ApiRequest) -> Action | None:
        """Return the action for ``request``, or None. Only the server's thread calls it, so the counts need no lock."""
        matches = all(getattr(request, name) == value for name, value in self.wanted.items())
        if self.left == 0 or not matches or not self._chance():
            return None
        action = self._fault(request)
        if action is not None:
            self.fired += 1
            self.left = None if self.left is None else self.left - 1
        return action


class Faults:
    """The faults of one server; thread-safe."""

    def __init__(self) -> None:
        # Guards _installed: tests add and clear while the server's thread reads.
        self._lock = Lock()
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
        """Install ``fault`` for the requests that match all given parameters.

        :param times: number of requests to affect; None for unlimited.
        :param project: the project of the requests.
        :param logstore: the logstore of the requests.
        :param operation: the operation, such as ``"PutLogs"``.
        :param probability: the chance that a matching request reaches the fault, 0.0 to 1.0.
        :param seed: seed that makes the chance repeatable.
        :param label: description for people; None for the name of the function.
        """
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability is {probability}: use a number from 0.0 to 1.0")
        wanted = {"project": project and project.lower(), "logstore": logstore, "operation": operation}
        chosen = {name: value for name, value in wanted.items() if value is not None}
        name = (next(self._numbers), _name_of(fault) if label is None else label)
        installed = InstalledFault(fault, times, _chance(probability, seed), chosen, name)
        with self._lock:
            self._installed.append(installed)
        return installed

    def remove(self, installed: InstalledFault) -> None:
        """Uninstall a fault; does nothing if it was cleared before."""
        with self._lock:
            self._installed = list(filter(lambda other: other is not installed, self._installed))

    def installed(self) -> list[InstalledFault]:
        """Return the installed faults, in the order of installation."""
        with self._lock:
            return list(self._installed)

    def clear(self) -> None:
        """Uninstall all faults."""
        with self._lock:
            self._installed = []

    def plan(self, request: ApiRequest) -> Plan:
        """Return the combined actions for ``request``."""
        actions = [fault.action_for(request) for fault in self.installed()]
        return combine(action for action in actions if action is not None)


def _name_of(fault: Fault) -> str:
    """Return the name of the fault's function; for a closure that of the outer function."""
    return str(getattr(fault, "__qualname__", repr(fault))).partition(".<locals>")[0]


def _chance(probability: float, seed: int | None) -> Callable[[], bool]:
    if probability >= 1.0:
        return lambda: True
    dice = random.Random(seed)  # noqa: S311 - chance for tests, not for secrets
    return lambda: dice.random() < probability
