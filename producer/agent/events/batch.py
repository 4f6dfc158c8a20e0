r"""EventBatch: events that travel together, as columns: their bodies in one block of bytes, and their headers.

A header mostly has one value for the whole batch: it is ``shared``. One whose values differ is a column, with a value
(or None, for an event without it) for each event. Where one event ends in the block is told in one of two ways:

* **lines**: each body is followed by ``\n`` or ``\r\n``, as in the file that the block was read from, and nobody needs
  to look for the ends before somebody asks for single bodies;
* **ends**: bodies lie one behind the other, and where each one ends is a number.

So a block of a file goes from its source to a channel and to the wire without a step for each line. A batch is never
changed: what an interceptor returns is another one, which shares the block.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, pairwise
from typing import Any, NamedTuple

from ...model.errors import InvalidArgumentError
from ...text.printable import readable
from ...wire.speed import measure_lines
from ...wire.text_column import TextColumn

#: Of one event, as event-at-a-time code sees them.
Headers = Mapping[str, str]
Column = Sequence[str | None]

_NO_HEADERS: Mapping[str, Any] = {}
#: Columns may have so many values for each that is there, and so many besides: what a batch needs of memory is then
#: bounded by what came, however many names its headers have.
_SPARSE, _SPARE = 8, 1 << 16
#: So many besides where events cannot become several batches.
_SPARE_AT_ONCE = 1 << 21
#: The header of the others, as a JSON object, where columns of all would have too many places.
OTHERS = "other_headers"


class Position(NamedTuple):
    """How far a source came with what it reads, once this batch is committed.

    :ivar name: what it reads, such as a file by its identity; unique in the source.
    :ivar end: the byte after the last one taken; grows.
    :ivar place: the path, if it is a file whose bytes are counted; for people.
    :ivar start: where the batch before it ends; set by the outlet.
    """

    name: str
    end: int
    place: str = ""
    start: int = 0


class EventBatch:
    """See the module; made by :meth:`of_lines` or :meth:`of_events`.

    :ivar block: the bodies.
    :ivar ends: where each body ends in the block; None for lines.
    :ivar count: events.
    :ivar shared: headers that all events have, with one value.
    :ivar columns: headers whose values differ, each with ``count`` values.
    :ivar position: see :class:`Position`; None from a source that cannot read anything again.
    :ivar sequence: the number of the batch in the channel from which it was taken; None before.
    :ivar origin: with ``sequence`` names this batch for all time (:mod:`.origins`); None where batches may be taken out
        of order.
    """

    __slots__ = ("block", "columns", "count", "ends", "origin", "position", "sequence", "shared")

    def __init__(  # noqa: PLR0917  # made where nobody but this package makes them
        self,
        block: bytes,
        ends: array[int] | None,
        count: int,
        shared: Headers = _NO_HEADERS,
        columns: Mapping[str, Column] = _NO_HEADERS,
        position: Position | None = None,
        sequence: int | None = None,
        origin: str | None = None,
    ) -> None:
        self.block, self.ends, self.count = block, ends, count
        self.shared, self.columns = shared, columns
        self.position, self.sequence, self.origin = position, sequence, origin

    @classmethod
    def of_lines(cls, block: bytes, shared: Headers = _NO_HEADERS, position: Position | None = None) -> EventBatch:
        r"""The lines of a block are the events.

        :param block: a last line without an end gets a ``\n``.
        """
        if block and not block.endswith(b"\n"):
            block += b"\n"
        return cls(block, None, measure_lines(block).ends, shared, position=position)

    @classmethod
    def of_bodies(
        cls,
        bodies: Sequence[bytes],
        shared: Headers = _NO_HEADERS,
        columns: Mapping[str, Column] = _NO_HEADERS,
        position: Position | None = None,
    ) -> EventBatch:
        """Bodies, whatever bytes they have."""
        for name, column in columns.items():
            if len(column) != len(bodies):
                raise InvalidArgumentError(f"header {name!r}: {len(column)} values for {len(bodies)} events")
        ends = array("Q", accumulate(map(len, bodies)))
        return cls(b"".join(bodies), ends, len(bodies), shared, columns, position)

    @classmethod
    def of_events(cls, events: Iterable[tuple[Headers, bytes]], position: Position | None = None) -> EventBatch:
        """Events one by one: for sources and interceptors that work so."""
        pairs = list(events)
        shared, columns = columns_of([headers for headers, _ in pairs])
        return cls.of_bodies([body for _, body in pairs], shared, columns, position)

    @classmethod
    def of_columns(
        cls, bodies: Sequence[bytes], columns: Mapping[str, Column], position: Position | None = None
    ) -> EventBatch:
        """Bodies and headers; those with one value for all events become shared ones."""
        shared, rest = _shared_of(columns)
        return cls.of_bodies(bodies, shared, rest, position)

    @property
    def size(self) -> int:
        """Bytes of the block."""
        return len(self.block)

    def __len__(self) -> int:
        return self.count

    def bodies(self) -> list[bytes]:
        """The bodies, one by one."""
        block = self.block
        if self.ends is None:
            lines = block.split(b"\n")
            lines.pop()
            return [line.removesuffix(b"\r") for line in lines] if b"\r" in block else lines
        return [block[start:end] for start, end in pairwise([0, *self.ends])]

    def headers(self) -> Iterator[dict[str, str]]:
        """The headers of each event."""
        if not self.columns:
            return (dict(self.shared) for _ in range(self.count))
        names, rows = list(self.columns), zip(*self.columns.values(), strict=True)
        return (
            {**self.shared, **{name: value for name, value in zip(names, row, strict=True) if value is not None}}
            for row in rows
        )

    def events(self) -> Iterator[tuple[dict[str, str], bytes]]:
        """Headers and body of each event."""
        return zip(self.headers(), self.bodies(), strict=True)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """A record batch for who takes Arrow's C data interface, such as ``pyarrow.record_batch(batch)``: ``body`` and
        a column for each header. Needs the extra ``arrow``.
        """
        from .arrow_batch import bodies_in, bodies_of, record_batch

        bodies = bodies_of(self.bodies()) if self.ends is None else bodies_in(self.block, self.ends)
        made = record_batch(bodies, self.count, self.shared, self.columns)
        capsules: tuple[object, object] = made.__arrow_c_array__(requested_schema)
        return capsules

    def values(self, name: str) -> Column:
        """A header's value of each event."""
        return self.columns.get(name) or [self.shared.get(name)] * self.count

    def lines(self) -> bytes:
        r"""The bodies, each with a ``\n`` behind it; as they lie, where they are lines."""
        if self.ends is None:
            return self.block
        return b"".join([body + b"\n" for body in self.bodies()])

    def offsets(self) -> list[int]:
        """Where each body begins in the block."""
        if self.ends is not None:
            return [0, *self.ends[:-1]] if self.count else []
        lengths = [len(line) + 1 for line in self.block.split(b"\n")]
        return list(accumulate(lengths[: self.count], initial=0))[: self.count]

    # -- others that share the block

    def with_shared(self, headers: Headers) -> EventBatch:
        """With these headers, in place of those of the same names."""
        columns = {name: column for name, column in self.columns.items() if name not in headers}
        return self._with({**self.shared, **headers}, columns)

    def with_column(self, name: str, values: Column) -> EventBatch:
        """With this header, in place of one of the same name."""
        return self.with_columns({name: values})

    def with_columns(self, columns: Mapping[str, Column]) -> EventBatch:
        """With these headers, likewise."""
        for name, values in columns.items():
            if len(values) != self.count:
                raise InvalidArgumentError(f"header {name!r}: {len(values)} values for {self.count} events")
        shared = {other: value for other, value in self.shared.items() if other not in columns}
        return self._with(shared, {**self.columns, **columns})

    def without(self, unwanted: Callable[[str], bool]) -> EventBatch:
        """Without the headers that have such a name."""
        shared = {name: value for name, value in self.shared.items() if not unwanted(name)}
        return self._with(shared, {name: column for name, column in self.columns.items() if not unwanted(name)})

    def with_bodies(self, bodies: Sequence[bytes]) -> EventBatch:
        """With other bodies, one for each event, and the same headers."""
        if len(bodies) != self.count:
            raise InvalidArgumentError(f"{len(bodies)} bodies for {self.count} events")
        return self.of_bodies(bodies, self.shared, self.columns, self.position)

    def at(self, position: Position | None) -> EventBatch:
        """With this position."""
        other = self._with(self.shared, self.columns)
        other.position = position
        return other

    def numbered(self, sequence: int | None, origin: str | None = None) -> EventBatch:
        """With this number, under this name."""
        other = self._with(self.shared, self.columns)
        other.sequence, other.origin = sequence, origin
        return other

    def select(self, keep: Sequence[object]) -> EventBatch:
        """Only the events for which ``keep`` has something true."""
        kept = list(compress(self.bodies(), keep))
        if len(kept) == self.count:
            return self
        columns = {name: list(compress(column, keep)) for name, column in self.columns.items()}
        if self.ends is None and b"\r\r\n" not in self.block:  # of a body that ends so a line would lose the end
            block = b"\n".join([*kept, b""]) if kept else b""
            return EventBatch(block, None, len(kept), self.shared, columns, self.position)
        return self.of_bodies(kept, self.shared, columns, self.position)

    def part(self, keep: Sequence[object]) -> EventBatch:
        """As :meth:`select`, with the number of the whole."""
        kept = self.select(keep)
        return kept if kept is self else kept.numbered(self.sequence)

    def encodable(self) -> EventBatch:
        r"""With headers that UTF-8 can carry: a byte that was none is ``\xNN``, half of a surrogate pair ``\uNNNN``."""
        shared, columns = self.shared, self.columns
        if not all(map(_is_encodable, [*shared, *shared.values(), *columns])):
            shared = {readable(name): readable(value) for name, value in shared.items()}
            columns = {readable(name): column for name, column in columns.items()}
        odd = {name: column for name, column in columns.items() if not TextColumn.of(column).is_encodable}
        if odd:
            columns = {**columns, **{name: list(map(_readable, column)) for name, column in odd.items()}}
        return self if columns is self.columns and shared is self.shared else self._with(shared, columns)

    def halves(self) -> tuple[EventBatch, EventBatch]:
        """The first half of the events and the second one, with the number of the whole, without headers that no event
        has; the second has the position.
        """
        middle = self.count // 2
        first = self.part([n < middle for n in range(self.count)])._without_empty()
        return first.at(None), self.part([n >= middle for n in range(self.count)])._without_empty()

    def _without_empty(self) -> EventBatch:
        return self._with(self.shared, {n: c for n, c in self.columns.items() if any(v is not None for v in c)})

    def without_bytes(self) -> EventBatch:
        """What a channel must know of it."""
        return EventBatch(b"", None, self.count, position=self.position, sequence=self.sequence, origin=self.origin)

    def split(self, name: str) -> dict[str | None, EventBatch]:
        """By the values of a header, each with its events in order; in the order of the first of each."""
        column = self.columns.get(name)
        if column is None:
            return {self.shared.get(name): self}
        return {value: self.select([each == value for each in column]) for value in dict.fromkeys(column)}

    def _with(self, shared: Headers, columns: Mapping[str, Column]) -> EventBatch:
        return EventBatch(self.block, self.ends, self.count, shared, columns, self.position, self.sequence, self.origin)

    def __repr__(self) -> str:
        return f"<EventBatch of {self.count} events, {self.size} bytes>"


def batches_of(events: Iterable[tuple[Headers, bytes]]) -> Iterator[EventBatch]:
    """Events one by one as batches: one, unless they have so many different headers that columns would waste memory."""
    pairs: list[tuple[Headers, bytes]] = []
    names: set[str] = set()
    filled = 0
    for headers, body in events:
        if pairs and headers == pairs[-1][0] and len(headers) == len(names):  # one more of these wastes nothing
            pairs.append((headers, body))
            filled += len(headers)
            continue
        more = names.union(headers) if not names.issuperset(headers) else names
        filled += len(headers)
        if pairs and is_sparse(len(more), len(pairs) + 1, filled):
            yield EventBatch.of_events(pairs)
            pairs, more, filled = [], set(headers), len(headers)
        pairs.append((headers, body))
        names = more
    if pairs:
        yield EventBatch.of_events(pairs)


def is_sparse(names: int, events: int, filled: int, spare: int = _SPARE) -> bool:
    """Whether columns of so many names would have too many values that are not there.

    :param filled: values that are there.
    :param spare: so many are never too many.
    """
    return names * events > _SPARSE * filled + spare


def columns_of(headers: Sequence[Headers]) -> tuple[dict[str, str], dict[str, Column]]:
    """What is shared of the headers of some events, and the rest as columns."""
    if headers and headers.count(headers[0]) == len(headers):  # most events of one hop
        return dict(headers[0]), {}
    counts = Counter(chain.from_iterable(headers))
    names = usual_names(counts, len(headers))
    shared, columns = _shared_of({name: [each.get(name) for each in headers] for name in names})
    if len(names) < len(counts):
        known = {*names} - {OTHERS}
        columns[OTHERS] = [_others(each, known) for each in headers]
    return shared, columns


def usual_names(counts: Counter[str], events: int) -> list[str]:
    """Of the headers' names those for columns: all, or the most frequent ones, if all would have too many places that
    are empty.

    :param counts: how many events have a header of that name.
    """
    if not is_sparse(len(counts), events, counts.total(), _SPARE_AT_ONCE):
        return list(counts)
    filled, names = 0, list[str]()
    for name, count in counts.most_common():
        filled += count
        if is_sparse(len(names) + 1, events, filled, _SPARE_AT_ONCE):
            break
        names.append(name)
    return names


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _readable(value: str | None) -> str | None:
    return None if value is None else readable(value)


def _others(headers: Headers, names: Container[str]) -> str | None:
    found = {name: value for name, value in headers.items() if name not in names}
    return json.dumps(found, ensure_ascii=False) if found else None


def _shared_of(columns: Mapping[str, Column]) -> tuple[dict[str, str], dict[str, Column]]:
    """Headers with one value for all events, and the others."""
    shared = {
        name: first
        for name, column in columns.items()
        if column and (first := column[0]) is not None and all(value == first for value in column)
    }
    return shared, {name: column for name, column in columns.items() if name not in shared}
