"""The LogGroups of an answer of PullLogs as Arrow's columns: two twins, as :mod:`producer.runtime.compiled` says.

The pure one stands on the protobuf library, and is also asked where an answer is not written as encoders write it. The
compiled one (``_read_columns.pyx``) goes from the answer's bytes to the columns' buffers, with no Python object for a
log or a field.

Source: LogHub protocol, Protobuf, PullLogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from google.protobuf.message import DecodeError

from ..runtime.compiled import compiled
from .read_fields import Fields, as_text, text_or_none
from .schema import FramedLogGroupList

if TYPE_CHECKING:
    from ._read_columns import Buffers, Groups

_native = compiled(f"{__package__}._read_columns")


@dataclass(frozen=True, slots=True)
class Head:
    """What the logs of a LogGroup share, as bytes.

    :ivar topic: the topic; empty if there is none, likewise the source.
    :ivar source: the source.
    :ivar tags: keys and values.
    """

    topic: bytes
    source: bytes
    tags: Sequence[tuple[bytes, bytes]]


class ReadGroups(Protocol):
    """LogGroups. Logs are numbered through all of them, from 0."""

    @property
    def sizes(self) -> Sequence[int]:
        """How many logs each LogGroup has."""

    def head(self, index: int) -> Head:
        """What the logs of a LogGroup share."""

    def times(self, first: int, stop: int) -> pa.Array:
        """The times of some logs, int64, microseconds since the epoch."""

    def named(self, first: int, stop: int, names: Sequence[str]) -> list[pa.Array]:
        """For each name the value of that field in each of some logs, as bytes; null where there is none; the last
        where there are several.
        """

    def contents(self, first: int, stop: int, kind: pa.MapType) -> pa.MapArray:
        """All fields of each of some logs; of several with one name the last.

        :param kind: the Arrow type, a map of text to text.
        """


def read_groups(body: bytes) -> ReadGroups:
    """The LogGroups of an answer.

    :param body: the answer, decompressed.
    :raises ValueError: it is no list of LogGroups.
    """
    if _native is None:
        return PureGroups(body)
    try:
        return NativeGroups(body, _native.Groups(body))
    except _native.UnusualError:
        return PureGroups(body)


class PureGroups:
    """See :class:`ReadGroups`; by the protobuf library.

    :raises ValueError: it is no list of LogGroups.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self._groups = FramedLogGroupList.FromString(body).LogGroups
        except DecodeError as error:
            raise ValueError(f"no list of LogGroups: {error}") from error
        self._logs = [log for group in self._groups for log in group.Logs]
        self.sizes: Sequence[int] = [len(group.Logs) for group in self._groups]

    def head(self, index: int) -> Head:
        """See :class:`ReadGroups`, and so the others."""
        group = self._groups[index]
        return Head(group.Topic, group.Source, [(tag.Key, tag.Value) for tag in group.LogTags])

    def times(self, first: int, stop: int) -> pa.Array:
        """In microseconds."""
        return pa.array([log.Time * 1_000_000 + log.Time_ns // 1000 for log in self._logs[first:stop]], pa.int64())

    def named(self, first: int, stop: int, names: Sequence[str]) -> list[pa.Array]:
        """By their names as text."""
        fields = self._fields(first, stop)
        return [fields.named(name) for name in names]

    def contents(self, first: int, stop: int, kind: pa.MapType) -> pa.MapArray:
        """As maps."""
        return self._fields(first, stop).as_map(kind)

    def _fields(self, first: int, stop: int) -> Fields:
        logs = self._logs[first:stop]
        return Fields([field for log in logs for field in log.Contents], [len(log.Contents) for log in logs])


class NativeGroups:
    """See :class:`ReadGroups`; by compiled code.

    :param body: the answer.
    :param groups: what was found in it.
    """

    def __init__(self, body: bytes, groups: Groups) -> None:
        self._body, self._groups = body, groups
        self.sizes: Sequence[int] = groups.sizes()

    def head(self, index: int) -> Head:
        """See :class:`ReadGroups`, and so the others."""
        return Head(*self._groups.head(index))

    def times(self, first: int, stop: int) -> pa.Array:
        """In microseconds."""
        return pa.Array.from_buffers(pa.int64(), stop - first, [None, pa.py_buffer(self._groups.times(first, stop))])

    def named(self, first: int, stop: int, names: Sequence[str]) -> list[pa.Array]:
        """By the bytes of their names."""
        if any("\\" in name for name in names):  # a name that is no text is shown with such, and asked for by them
            return PureGroups(self._body).named(first, stop, names)
        found = self._groups.named(first, stop, [name.encode(errors="surrogatepass") for name in names])
        return [_binary(stop - first, buffers) for buffers in found]

    def contents(self, first: int, stop: int, kind: pa.MapType) -> pa.MapArray:
        """As maps."""
        found = self._groups.contents(first, stop)
        if found is not None:
            starts, keys, values = found
            places = pa.Array.from_buffers(pa.int32(), stop - first + 1, [None, pa.py_buffer(starts)])
            count = places[-1].as_py()
            names = text_or_none(_binary(count, keys))
            if names is not None:  # else two of them may be shown alike
                return pa.MapArray.from_arrays(places, names, as_text(_binary(count, values)), type=kind)
        return PureGroups(self._body).contents(first, stop, kind)


def _binary(count: int, buffers: Buffers) -> Any:
    valid, offsets, data, nulls = buffers
    parts = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, parts, nulls)
