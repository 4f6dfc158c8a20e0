"""Converts the LogGroups of a PullLogs response to Arrow columns, natively or purely.

The pure implementation uses the protobuf library. It also reads responses that are valid but unusual in form. The
native one (``_read_columns.pyx``) converts the bytes of the response to the buffers of the columns, without a Python
object per log or field.

Source: LogHub protocol, Protobuf, PullLogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

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
    """The values that the logs of a LogGroup share, as bytes.

    :ivar topic: the topic; empty if there is none.
    :ivar source: the source; empty if there is none.
    :ivar tags: pairs of key and value.
    """

    topic: bytes
    source: bytes
    tags: Sequence[tuple[bytes, bytes]]


def read_groups(body: bytes) -> ReadGroups:
    """Read the LogGroups of a response.

    :param body: the decompressed response.
    :raises ValueError: it is not a list of LogGroups.
    """
    if _native is None:
        return PureGroups(body)
    try:
        return NativeGroups(body, _native.Groups(body))
    except _native.UnusualError:
        return PureGroups(body)


class PureGroups:
    """LogGroups that the protobuf library has read; logs are numbered across all of them, from 0.

    :ivar sizes: the number of logs in each LogGroup.
    :raises ValueError: the response is not a list of LogGroups.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self._groups = FramedLogGroupList.FromString(body).LogGroups
        except DecodeError as error:
            raise ValueError(f"not a list of LogGroups: {error}") from error
        self._logs = [log for group in self._groups for log in group.Logs]
        self.sizes: Sequence[int] = [len(group.Logs) for group in self._groups]

    def head(self, index: int) -> Head:
        """Return the values that the logs of a LogGroup share."""
        group = self._groups[index]
        return Head(group.Topic, group.Source, [(tag.Key, tag.Value) for tag in group.LogTags])

    def times(self, first: int, stop: int) -> pa.Array:
        """Return the times of some logs, int64, microseconds since the epoch."""
        return pa.array([log.Time * 1_000_000 + log.Time_ns // 1000 for log in self._logs[first:stop]], pa.int64())

    def named(self, first: int, stop: int, names: Sequence[str]) -> list[pa.Array]:
        """Return an array for each name with the field's value in each of some logs, as bytes.

        A missing field is null. Of a repeated field, the last value is used.
        """
        fields = self._fields(first, stop)
        return [fields.named(name) for name in names]

    def contents(self, first: int, stop: int, kind: pa.MapType) -> pa.MapArray:
        """Return all fields of each of some logs; of a repeated field, the last value is used.

        :param kind: the Arrow type, a map of text to text.
        """
        return self._fields(first, stop).as_map(kind)

    def _fields(self, first: int, stop: int) -> Fields:
        logs = self._logs[first:stop]
        return Fields([field for log in logs for field in log.Contents], [len(log.Contents) for log in logs])


class NativeGroups:
    """The same for LogGroups that native code has read.

    :param body: the decompressed response.
    :param groups: the native result.
    """

    def __init__(self, body: bytes, groups: Groups) -> None:
        self._body, self._groups = body, groups
        self.sizes: Sequence[int] = groups.sizes()

    def head(self, index: int) -> Head:
        return Head(*self._groups.head(index))

    def times(self, first: int, stop: int) -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), stop - first, [None, pa.py_buffer(self._groups.times(first, stop))])

    def named(self, first: int, stop: int, names: Sequence[str]) -> list[pa.Array]:
        # Bytes that are not UTF-8 are shown with backslashes, and such a name may be one of them.
        if any("\\" in name for name in names):
            return PureGroups(self._body).named(first, stop, names)
        found = self._groups.named(first, stop, [name.encode(errors="surrogatepass") for name in names])
        return [_binary(stop - first, buffers) for buffers in found]

    def contents(self, first: int, stop: int, kind: pa.MapType) -> pa.MapArray:
        found = self._groups.contents(first, stop)
        if found is not None:
            starts, keys, values = found
            places = pa.Array.from_buffers(pa.int32(), stop - first + 1, [None, pa.py_buffer(starts)])
            count = places[-1].as_py()
            names = text_or_none(_binary(count, keys))
            if names is not None:  # Otherwise two invalid names may be shown alike.
                return pa.MapArray.from_arrays(places, names, as_text(_binary(count, values)), type=kind)
        return PureGroups(self._body).contents(first, stop, kind)


#: The LogGroups of a response.
ReadGroups: TypeAlias = PureGroups | NativeGroups


def _binary(count: int, buffers: Buffers) -> Any:
    valid, offsets, data, nulls = buffers
    parts = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, parts, nulls)
