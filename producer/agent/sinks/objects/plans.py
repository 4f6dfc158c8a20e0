"""Plans: which batches become one object. A plan is noted before the object is written, so that a retry, also by
another process, writes the same object.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ....runtime.loggers import get_logger
from ....runtime.whole_file import write_whole
from ...events.batch import EventBatch

_log = get_logger("loghub.agent.sink.objects")

_FILE = "plans.json"


class Plan(NamedTuple):
    """Batches that are written together.

    :ivar origin: the identifier of their channel.
    :ivar first: the number of the first batch.
    :ivar last: the number of the last batch.
    :ivar time: the time of the first attempt, milliseconds since the epoch.
    """

    origin: str
    first: int
    last: int
    time: int

    @property
    def name(self) -> str:
        """The part of objects' names that identifies the plan."""
        return f"{sha256(self.origin.encode()).hexdigest()[:12]}-{self.first:012d}-{self.last:012d}"


class Plans:
    """The plans of the last delivery.

    :param directory: the directory of the notes.
    :param run: the identifier of this run, for batches that cannot be recognized again.
    """

    def __init__(self, directory: Path, run: str) -> None:
        self._path, self._run = directory / _FILE, run
        self._unnumbered = itertools.count()
        self._plans: list[Plan] = []
        self.hidden: list[str] = []
        self._read()

    def cut(self, batches: Sequence[EventBatch], now: int) -> list[tuple[Plan, list[EventBatch]]]:
        """Group batches into plans; those planned before are grouped in the same way.

        :param now: milliseconds since the epoch.
        """
        known = {(plan.origin, plan.first): plan for plan in self._plans}
        batches = [batch if batch.sequence is not None else self._numbered(batch) for batch in batches]
        found: list[tuple[Plan, list[EventBatch]]] = []
        for group in self._groups(batches, known):
            origin, first, last = *self._identity(group[0]), self._identity(group[-1])[1]
            plan = known.get((origin, first))
            time = plan.time if plan is not None and plan.last == last else now
            found.append((Plan(origin, first, last, time), group))
        return found

    def note(self, plans: Sequence[Plan], hidden: Sequence[str]) -> None:
        """Store the plans and hidden names on the disk, before anything is written.

        :raises OSError: that failed.
        """
        if list(plans) == self._plans and list(hidden) == self.hidden:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"plans": plans, "hidden": hidden})
        write_whole(self._path, text.encode(), self._path.with_name(f"{_FILE}~"))
        self._plans, self.hidden = list(plans), list(hidden)

    def _groups(self, batches: Sequence[EventBatch], known: dict[tuple[str, int], Plan]) -> Iterator[list[EventBatch]]:
        """Yield groups: split where a plan began or ended, and where batches have another origin."""
        there = {self._identity(batch) for batch in batches}
        group: list[EventBatch] = []
        last: int | None = None
        for batch in batches:
            identity = self._identity(batch)
            plan = known.get(identity)
            whole = plan is not None and (plan.origin, plan.last) in there
            if group and (whole or last == self._identity(group[-1])[1] or identity[0] != self._identity(group[-1])[0]):
                yield group
                group, last = [], None
            group.append(batch)
            if whole and plan is not None:
                last = plan.last
        if group:
            yield group

    def _numbered(self, batch: EventBatch) -> EventBatch:
        """Number a batch that its channel did not number; it cannot be recognized again."""
        return batch.numbered(next(self._unnumbered), f"{self._run}/")

    def _identity(self, batch: EventBatch) -> tuple[str, int]:
        return batch.origin or self._run, batch.sequence or 0

    def _read(self) -> None:
        try:
            kept: dict[str, Any] = json.loads(self._path.read_text("utf-8"))
            self._plans = [Plan(str(o), int(f), int(end), int(t)) for o, f, end, t in kept["plans"]]
            self.hidden = [str(path) for path in kept["hidden"]]
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s cannot be read, so objects planned in it may be written twice: %s", self._path, error)
