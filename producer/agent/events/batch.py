r"""Batches of events as columns: their bodies in one block of bytes, and their headers.

Most headers have one value for the whole batch; these are ``shared``. The others are columns, with one value for each
event, or None. The block is in one of two forms:

* **lines**: each body is followed by ``\n`` or ``\r\n``, as in the file that it was read from. The ends are searched
  for only when single bodies are needed.
* **ends**: bodies lie one after the other, and the end of each is a number.

So a block of a file goes from its source through a channel to the wire without work for each line. A batch is
immutable. An interceptor returns a new one, which shares the block.
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

#: The headers of one event.
Headers = Mapping[str, str]
Column = Sequence[str | None]

_NO_HEADERS: Mapping[str, Any] = {}
#: Maximum empty cells of columns: so many per value, plus a constant. So the received bytes limit the memory of a
#: batch, however many header names it has.
_SPARSE, _SPARE = 8, 1 << 16
#: The constant for events that cannot be split into several batches.
_SPARE_AT_ONCE = 1 << 21
#: The header with all other headers, as a JSON object, for batches whose columns would be mostly empty.
OTHERS = "other_headers"


class Position(NamedTuple):
    """The source's read offset once this batch is committed.

    :ivar name: the identity of the object that is read, such as a file; unique in the source.
    :ivar end: the offset after the last byte taken; it grows.
    :ivar place: the path, for a file; shown to operators.
    :ivar start: the end of the previous batch; set by the outlet.
    """

    name: str
    end: int
    place: str = ""
    start: int = 0


class EventBatch:
    """An immutable batch of events, made by :meth:`of_lines`, :meth:`of_bodies`, :meth:`of_columns` or
    :meth:`of_events`.

    :ivar block: the bodies.
    :ivar ends: the end of each body in the block; None for lines.
    :ivar count: the number of events.
    :ivar shared: headers with one value for all events.
    :ivar columns: the other headers, each with ``count`` values.
    :ivar position: the source's read offset; None from a source that cannot read again.
    :ivar sequence: the number of the batch in its channel; None before it was taken from one.
    :ivar origin: identifies this batch permanently, together with ``sequence`` (:mod:`..ledger.number_epochs`); None
        where batches may be taken out of order.
    """

    __slots__ = ("block", "columns", "count", "ends", "origin", "position", "sequence", "shared")

    def __init__(  # noqa: PLR0917  # made only in this package
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
        r"""Build a batch from a block whose lines are the events.

        :param block: the lines; a ``\n`` is added to an incomplete last one.
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
        """Build a batch from bodies of any bytes."""
        for name, column in columns.items():
            if len(column) != len(bodies):
                raise InvalidArgumentError(f"header {name!r}: {len(column)} values for {len(bodies)} events")
        ends = array("Q", accumulate(map(len, bodies)))
        return cls(b"".join(bodies), ends, len(bodies), shared, columns, position)

    @classmethod
    def of_events(cls, events: Iterable[tuple[Headers, bytes]], position: Position | None = None) -> EventBatch:
        """Build a batch from single events, for sources and interceptors that work on these."""
        pairs = list(events)
        shared, columns = columns_of([headers for headers, _ in pairs])
        return cls.of_bodies([body for _, body in pairs], shared, columns, position)

    @classmethod
    def of_columns(
        cls, bodies: Sequence[bytes], columns: Mapping[str, Column], position: Position | None = None
    ) -> EventBatch:
        """Build a batch from bodies and columns. Headers with one value for all events become shared ones."""
        shared, rest = _shared_of(columns)
        return cls.of_bodies(bodies, shared, rest, position)

    @property
    def size(self) -> int:
        """The bytes of the block."""
        return len(self.block)

    def __len__(self) -> int:
        return self.count

    def bodies(self) -> list[bytes]:
        """Return the single bodies."""
        block = self.block
        if self.ends is None:
            lines = block.split(b"\n")
            lines.pop()
            return [line.removesuffix(b"\r") for line in lines] if b"\r" in block else lines
        return [block[start:end] for start, end in pairwise([0, *self.ends])]

    def headers(self) -> Iterator[dict[str, str]]:
        """Yield the headers of each event."""
        if not self.columns:
            return (dict(self.shared) for _ in range(self.count))
        names, rows = list(self.columns), zip(*self.columns.values(), strict=True)
        return (
            {**self.shared, **{name: value for name, value in zip(names, row, strict=True) if value is not None}}
            for row in rows
        )

    def events(self) -> Iterator[tuple[dict[str, str], bytes]]:
        """Yield the headers and the body of each event."""
        return zip(self.headers(), self.bodies(), strict=True)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Export a record batch by Arrow's C data interface, as for ``pyarrow.record_batch(batch)``.

        It has the column ``body``, and one for each header. Needs the extra ``arrow``.
        """
        from .arrow_batch import bodies_in, bodies_of, record_batch

        bodies = bodies_of(self.bodies()) if self.ends is None else bodies_in(self.block, self.ends)
        made = record_batch(bodies, self.count, self.shared, self.columns)
        capsules: tuple[object, object] = made.__arrow_c_array__(requested_schema)
        return capsules

    def values(self, name: str) -> Column:
        """Return a header's value for each event."""
        return self.columns.get(name) or [self.shared.get(name)] * self.count

    def lines(self) -> bytes:
        r"""Return the bodies, each followed by ``\n``. A batch of lines returns its block."""
        if self.ends is None:
            return self.block
        return b"".join([body + b"\n" for body in self.bodies()])

    def offsets(self) -> list[int]:
        """Return the start of each body in the block."""
        if self.ends is not None:
            return [0, *self.ends[:-1]] if self.count else []
        lengths = [len(line) + 1 for line in self.block.split(b"\n")]
        return list(accumulate(lengths[: self.count], initial=0))[: self.count]

    # -- other batches that share the block

    def with_shared(self, headers: Headers) -> EventBatch:
        """Return a batch with these shared headers, which replace those of the same names."""
        columns = {name: column for name, column in self.columns.items() if name not in headers}
        return self._with({**self.shared, **headers}, columns)

    def with_column(self, name: str, values: Column) -> EventBatch:
        """Return a batch with this column, which replaces a header of the same name."""
        return self.with_columns({name: values})

    def with_columns(self, columns: Mapping[str, Column]) -> EventBatch:
        """Return a batch with these columns, which replace headers of the same names."""
        for name, values in columns.items():
            if len(values) != self.count:
                raise InvalidArgumentError(f"header {name!r}: {len(values)} values for {self.count} events")
        shared = {other: value for other, value in self.shared.items() if other not in columns}
        return self._with(shared, {**self.columns, **columns})

    def without(self, unwanted: Callable[[str], bool]) -> EventBatch:
        """Return a batch without the headers whose names are unwanted."""
        shared = {name: value for name, value in self.shared.items() if not unwanted(name)}
        return self._with(shared, {name: column for name, column in self.columns.items() if not unwanted(name)})

    def with_bodies(self, bodies: Sequence[bytes]) -> EventBatch:
        """Return a batch with the same headers and other bodies, one for each event."""
        if len(bodies) != self.count:
            raise InvalidArgumentError(f"{len(bodies)} bodies for {self.count} events")
        return self.of_bodies(bodies, self.shared, self.columns, self.position)

    def at(self, position: Position | None) -> EventBatch:
        """Return a batch with this position."""
        other = self._with(self.shared, self.columns)
        other.position = position
        return other

    def numbered(self, sequence: int | None, origin: str | None = None) -> EventBatch:
        """Return a batch with this sequence number and origin."""
        other = self._with(self.shared, self.columns)
        other.sequence, other.origin = sequence, origin
        return other

    def select(self, keep: Sequence[object]) -> EventBatch:
        """Return a batch of the events for which ``keep`` is true."""
        kept = list(compress(self.bodies(), keep))
        if len(kept) == self.count:
            return self
        columns = {name: list(compress(column, keep)) for name, column in self.columns.items()}
        if self.ends is None and b"\r\r\n" not in self.block:  # else a body could end in \r, which a line would lose
            block = b"\n".join([*kept, b""]) if kept else b""
            return EventBatch(block, None, len(kept), self.shared, columns, self.position)
        return self.of_bodies(kept, self.shared, columns, self.position)

    def part(self, keep: Sequence[object]) -> EventBatch:
        """Return the events of :meth:`select` with the sequence number of the whole batch."""
        kept = self.select(keep)
        return kept if kept is self else kept.numbered(self.sequence)

    def encodable(self) -> EventBatch:
        r"""Return a batch whose headers UTF-8 can encode.

        A byte that is not UTF-8 becomes ``\xNN``. Half of a surrogate pair becomes ``\uNNNN``.
        """
        shared, columns = self.shared, self.columns
        if not all(map(_is_encodable, [*shared, *shared.values(), *columns])):
            shared = {readable(name): readable(value) for name, value in shared.items()}
            columns = {readable(name): column for name, column in columns.items()}
        odd = {name: column for name, column in columns.items() if not TextColumn.of(column).is_encodable}
        if odd:
            columns = {**columns, **{name: list(map(_readable, column)) for name, column in odd.items()}}
        return self if columns is self.columns and shared is self.shared else self._with(shared, columns)

    def halves(self) -> tuple[EventBatch, EventBatch]:
        """Return the two halves of the events, both with the sequence number of the whole.

        Headers that no event of a half has are left out. Only the second half has the position.
        """
        middle = self.count // 2
        first = self.part([n < middle for n in range(self.count)])._without_empty()
        return first.at(None), self.part([n >= middle for n in range(self.count)])._without_empty()

    def _without_empty(self) -> EventBatch:
        return self._with(self.shared, {n: c for n, c in self.columns.items() if any(v is not None for v in c)})

    def without_bytes(self) -> EventBatch:
        """Return a batch without bodies and headers, for the bookkeeping of a channel."""
        return EventBatch(b"", None, self.count, position=self.position, sequence=self.sequence, origin=self.origin)

    def split(self, name: str) -> dict[str | None, EventBatch]:
        """Return the events of each value of a header, in order. Values are in the order of their first events."""
        column = self.columns.get(name)
        if column is None:
            return {self.shared.get(name): self}
        return {value: self.select([each == value for each in column]) for value in dict.fromkeys(column)}

    def _with(self, shared: Headers, columns: Mapping[str, Column]) -> EventBatch:
        return EventBatch(self.block, self.ends, self.count, shared, columns, self.position, self.sequence, self.origin)

    def __repr__(self) -> str:
        return f"<EventBatch of {self.count} events, {self.size} bytes>"


def batches_of(events: Iterable[tuple[Headers, bytes]]) -> Iterator[EventBatch]:
    """Yield single events as batches. It yields several if one batch would have mostly empty columns."""
    pairs: list[tuple[Headers, bytes]] = []
    names: set[str] = set()
    filled = 0
    for headers, body in events:
        if pairs and headers == pairs[-1][0] and len(headers) == len(names):  # adds no empty place
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
    """Return True if columns would have too many empty places.

    :param names: the number of columns.
    :param filled: the number of values.
    :param spare: empty places that are always allowed.
    """
    return names * events > _SPARSE * filled + spare


def columns_of(headers: Sequence[Headers]) -> tuple[dict[str, str], dict[str, Column]]:
    """Return the headers that all events share, and the others as columns."""
    if headers and headers.count(headers[0]) == len(headers):  # the usual case: events of one source
        return dict(headers[0]), {}
    counts = Counter(chain.from_iterable(headers))
    names = usual_names(counts, len(headers))
    shared, columns = _shared_of({name: [each.get(name) for each in headers] for name in names})
    if len(names) < len(counts):
        known = {*names} - {OTHERS}
        columns[OTHERS] = [_others(each, known) for each in headers]
    return shared, columns


def usual_names(counts: Counter[str], events: int) -> list[str]:
    """Return the names that become columns: all, or the most frequent ones if too many places would be empty.

    :param counts: the number of events with a header of each name.
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
    """Return the headers with one value for all events, and the others."""
    shared = {
        name: first
        for name, column in columns.items()
        if column and (first := column[0]) is not None and all(value == first for value in column)
    }
    return shared, {name: column for name, column in columns.items() if name not in shared}
