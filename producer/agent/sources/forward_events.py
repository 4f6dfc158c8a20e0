"""The events of one message of Fluentd's forward protocol. All of a valid message is kept.

Each record is an event. Its fields become headers, except for the field that is the body; without one the body is the
record as JSON. Further headers are the tag and the time (``timestamp``, milliseconds). A time in an unknown format is
kept in the header ``time``. Fluent Bit adds, as JSON, an event's ``metadata`` and the record of its ``group``.

Example: ``["app", [1700000000, {}], {"log": "a", "n": 1}]`` is the body ``a`` with the headers ``n`` (``1``), ``tag``
and ``timestamp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgpack

from ..protocols.fields import json_bytes, json_of, text_of, with_own
from ..protocols.forward import Values, group_mark, milliseconds, raw
from ..protocols.reckoning import Reckoning
from .unpacking import unpacked

_PACKINGS = {"gzip": "gzip", "zstd": "zstd"}
#: Milliseconds; a later time may be Fluent Bit's mark of a group: -2 or -1 seconds, read as unsigned.
_LATEST = ((1 << 32) - 2) * 1000
#: Signals of Fluent Bit other than logs.
_SIGNALS = {1: "metrics", 2: "traces", 3: "profiles"}


class BadEventError(Exception):
    """Raised for a message that is not one of events."""


class Message:
    """One message; its events are made one at a time.

    :param most: the maximum unpacked bytes.
    :param reckoning: counts the memory of events before they are made.
    :ivar chunk: the identifier to acknowledge, once all events have been made; None if none is asked for.
    """

    def __init__(self, frame: bytes, most: int, reckoning: Reckoning) -> None:
        self._values, self._most, self._reckoning = Values(frame, reckoning), most, reckoning
        self._group: str | None = None
        self.chunk: Any = None

    def events(self, field: str | None, tag_header: str) -> Iterator[tuple[dict[str, str], bytes]]:
        """Yield the events.

        :param field: the field that becomes the body; None for the record as JSON.
        :raises BadEventError: the message is invalid.
        """
        for tag, entry in self._entries():
            event = self._event(entry, field, {tag_header: tag})
            if event is not None:
                yield event

    def _entries(self) -> Iterator[tuple[str, Any]]:
        values = self._values
        if not values.begins_array:
            if values.value() is not None:  # a heartbeat
                raise BadEventError("it sent an invalid message")
            return
        count = values.array()
        if not 2 <= count <= 4:
            raise BadEventError("it sent an invalid message")
        tag = values.value()
        if not isinstance(tag, str | bytes):
            raise BadEventError("it sent an invalid message")
        for entry in self._entries_of(count):
            yield text_of(tag), entry

    def _entries_of(self, count: int) -> Iterator[Any]:
        return self._several(count) if self._values.begins_array else self._packed_or_one(count)

    def _several(self, count: int) -> Iterator[Any]:
        for _ in range(self._values.array()):
            yield self._values.value()
        self._take_option(count - 2)

    def _packed_or_one(self, count: int) -> Iterator[Any]:
        values = self._values
        content = values.value()
        if not isinstance(content, str | bytes):
            yield from self._one(content, count)
            return
        option = self._take_option(count - 2)
        compressed = option.get("compressed", "text")
        data = raw(content)
        if compressed != "text":
            if compressed not in _PACKINGS:
                raise BadEventError(f"unknown compression, gzip and zstd are supported: {str(compressed)[:20]!r}")
            data = self._unpacked(_PACKINGS[compressed], data)
        try:
            yield from Values(data, self._reckoning)
        except msgpack.OutOfData as error:
            raise BadEventError("packed events are incomplete") from error

    def _one(self, time: Any, count: int) -> Iterator[Any]:
        if count < 3:
            raise BadEventError("it sent an invalid message")
        yield [time, self._values.value()]
        self._take_option(count - 3)

    def _take_option(self, left: int) -> Mapping[Any, Any]:
        """Read the options after the events, if there are any."""
        given = self._values.value() if left else None
        option: Mapping[Any, Any] = given if isinstance(given, Mapping) else {}
        signal = option.get("fluent_signal", 0)
        if signal in _SIGNALS:
            raise BadEventError(f"it sends {_SIGNALS[signal]}; only logs are accepted")
        self.chunk = option.get("chunk")
        return option

    def _unpacked(self, kind: str, data: bytes) -> bytes:
        found = bytearray()
        for piece in unpacked(kind, [data]):
            found += piece
            if len(found) > self._most:
                raise BadEventError(f"a packed message exceeds {self._most} bytes, unpacked (max_frame)")
        return bytes(found)

    def _event(self, entry: Any, field: str | None, own: dict[str, str]) -> tuple[dict[str, str], bytes] | None:
        """Return an event; None for a mark that begins or ends a group."""
        if type(entry) is not list or len(entry) != 2 or type(entry[1]) is not dict:
            raise BadEventError("an event must be a time and a record")
        time, record = entry
        metadata = None
        if type(time) is list and len(time) == 2:
            time, metadata = time
        stamp = milliseconds(time)
        if stamp is not None and 0 <= stamp < _LATEST:
            own["timestamp"] = str(stamp)
        elif (mark := group_mark(time)) is not None:
            self._group = json_of({"metadata": metadata, **record} if metadata else record) if mark else None
            return None
        elif time is not None:
            own["time" if stamp is None else "timestamp"] = text_of(time) if stamp is None else str(stamp)
        if metadata:
            own["metadata"] = json_of(metadata)
        if self._group is not None:
            own["group"] = self._group
        if field is None or field not in record:
            return own, json_bytes(record)
        fields = {name: text_of(value) for name, value in record.items() if name != field and value is not None}
        return with_own(fields, own), text_of(record[field]).encode("utf-8", "surrogateescape")
