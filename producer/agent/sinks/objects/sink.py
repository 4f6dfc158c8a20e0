"""ObjectsSink: the sink that the agent runs."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from math import inf

from ....runtime.clock import Clock
from ....text.printable import masked, without_userinfo
from ...events.batch import EventBatch
from ...events.interfaces import Context, Patience, Refusal, RefusedError, SinkError
from ...flow.isolation import is_of_event
from ..places import shortened
from .columns import Columns
from .forms import encoded
from .known_columns import KnownColumns
from .options import ObjectsOptions
from .plans import Plan, Plans
from .stores import PathRefusedError, store_of
from .tables import parquet_file, sample_row

_MOST_SHOWN = 300
#: Additional bytes of a hidden name.
_OF_HIDDEN = 2
#: Shorter secrets are not hidden in messages: they may be usual words.
_SECRET_LENGTH = 8


class ObjectsSink:
    """Sink that writes objects: files on a disk, in S3 and other stores, or in HDFS; text, JSON or Parquet."""

    Options = ObjectsOptions
    #: Waits for large deliveries.
    waits = True

    @staticmethod
    def render_sample(options: ObjectsOptions, event: EventBatch, _clock: Clock) -> str:
        """Return the text of an event in an object; a row of Parquet as JSON."""
        if options.format == "parquet":
            return sample_row(event, options.column_rules)
        return encoded([event], options.format, "none").decode(errors="backslashreplace")

    def __init__(self, options: ObjectsOptions, context: Context) -> None:
        self._options, self._clock, self._counters = options, context.clock, context.counters
        self.most_events, self.most_bytes = options.most_events, options.most_bytes
        self.patience = Patience(options.roll_interval or inf, options.idle_timeout or inf)
        self._places, self._store = options.places(), store_of(options.path, options.storage)
        self._plans = Plans(context.state, secrets.token_hex(16))
        self._rules, self._known = options.column_rules, KnownColumns(context.state)
        self._clean = False

    def write(self, batches: Sequence[EventBatch]) -> None:
        try:
            self._remove_hidden()
            groups = self._plans.cut([batch for batch in batches if batch.count], round(self._clock.time() * 1000))
            placed = [self._placed(plan, group) for plan, group in groups]
            paths = [path for objects in placed for path in objects]
            hidden = [name for path in paths if (name := self._store.hidden(path)) is not None]
            self._plans.note([plan for plan, _ in groups], hidden)
            refusals = self._put_all(placed)
        except Exception as error:  # each store raises errors of its own libraries
            if is_of_event(error):
                raise
            raise SinkError(f"{without_userinfo(self._options.path)}: {self._description(error)}") from error

        if refusals:
            raise RefusedError.of(refusals)

    def close(self) -> None:
        self._store.close()

    def _put_all(self, placed: Sequence[dict[str, list[EventBatch]]]) -> list[Refusal]:
        """Store objects; return the refusals of those whose path is invalid."""
        refusals: list[Refusal] = []
        for objects in placed:
            for path, parts in objects.items():
                try:
                    self._put(path, parts)
                except PathRefusedError as error:
                    reason, sent = self._description(error), int(not error.permanent)
                    refusals += [Refusal(part, reason, error.permanent, sent) for part in parts]
        return refusals

    def _placed(self, plan: Plan, batches: Sequence[EventBatch]) -> dict[str, list[EventBatch]]:
        """Return the batches of each object of a plan, by path."""
        found: dict[str, list[EventBatch]] = {}
        for batch in batches:
            for place, part in self._places.split(batch, plan.time):
                found.setdefault(self._path(place, f"-{plan.name}{self._options.suffix}"), []).append(part)
        return found

    def _path(self, place: str, ending: str) -> str:
        most = self._store.most_name
        return (place if most is None else shortened(place, most, len(ending.encode()) + _OF_HIDDEN)) + ending

    def _put(self, path: str, batches: Sequence[EventBatch]) -> None:
        options, counts = self._options, Counter[str]()
        if options.format == "parquet":
            data, counts = self._table(batches)
        else:
            data = encoded(batches, options.format, options.packed)
        self._store.put(path, data)
        self._counters.add(ObjectCount=1, **counts)

    def _table(self, batches: Sequence[EventBatch]) -> tuple[bytes, Counter[str]]:
        """Return a Parquet file, once its columns are noted for the next file of the table."""
        table = self._places.table(batches[0])
        columns = Columns(self._rules, self._known.of(table))
        data, counts = parquet_file(batches, columns, self._rules, self._options.packed)
        self._known.note(table, columns.kinds)
        return data, counts

    def _remove_hidden(self) -> None:
        """Remove hidden files left by a crash."""
        if not self._clean:
            for path in self._plans.hidden:
                self._store.remove(path)
            self._clean = True

    def _description(self, error: Exception) -> str:
        """Return an error in one line, without the store's secrets."""
        named = str(error) if isinstance(error, PathRefusedError) else f"{type(error).__name__}: {error}"
        line = without_userinfo(" ".join(named.split()))
        return masked(line, self._options.storage.values(), _SECRET_LENGTH)[:_MOST_SHOWN]
