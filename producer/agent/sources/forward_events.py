"""The events of one message of Fluentd's forward protocol; whatever its sender puts into them, nothing is lost.

A record is an event: its fields are headers, but for one that is the body, or its JSON is the body. Besides come, as
headers, the tag, the time (``timestamp``, milliseconds), a time that is none of the protocol's as it is (``time``), and
what Fluent Bit says beside them: an event's ``metadata``, and the record of its ``group``, as JSON.

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
#: Milliseconds: from there on a time may be a mark of Fluent Bit's, -2 or -1 seconds without their sign.
_LATEST = ((1 << 32) - 2) * 1000
#: What Fluent Bit sends beside logs.
_SIGNALS = {1: "metrics", 2: "traces", 3: "profiles"}


class BadEventError(Exception):
    """It is no message of events."""


class Message:
    """A message; its events are made one at a time.

    :param most: bytes that it may unpack to.
    :param reckoning: is told of what an event becomes, before.
    :ivar chunk: what its sender wants to be acknowledged, once all events have been made; None for nothing.
    """

    def __init__(self, frame: bytes, most: int, reckoning: Reckoning) -> None:
        self._values, self._most, self._reckoning = Values(frame, reckoning), most, reckoning
        self._group: str | None = None
        self.chunk: Any = None

    def events(self, field: str | None, tag_header: str) -> Iterator[tuple[dict[str, str], bytes]]:
        """The events.

        :param field: the field that is the body; None for the record as JSON.
        :raises BadEventError: it has something else.
        """
        for tag, entry in self._entries():
            event = self._event(entry, field, {tag_header: tag})
            if event is not None:
                yield event

    def _entries(self) -> Iterator[tuple[str, Any]]:
        values = self._values
        if not values.begins_array:
            if values.value() is not None:  # a heartbeat
                raise BadEventError("it sent something that is no message")
            return
        count = values.array()
        if not 2 <= count <= 4:
            raise BadEventError("it sent something that is no message")
        tag = values.value()
        if not isinstance(tag, str | bytes):
            raise BadEventError("it sent something that is no message")
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
                raise BadEventError(f"gzip and zstd are understood, no other packing: {str(compressed)[:20]!r}")
            data = self._unpacked(_PACKINGS[compressed], data)
        try:
            yield from Values(data, self._reckoning)
        except msgpack.OutOfData as error:
            raise BadEventError("packed events are not whole") from error

    def _one(self, time: Any, count: int) -> Iterator[Any]:
        if count < 3:
            raise BadEventError("it sent something that is no message")
        yield [time, self._values.value()]
        self._take_option(count - 3)

    def _take_option(self, left: int) -> Mapping[Any, Any]:
        """What stands behind the events, if anything does."""
        given = self._values.value() if left else None
        option: Mapping[Any, Any] = given if isinstance(given, Mapping) else {}
        signal = option.get("fluent_signal", 0)
        if signal in _SIGNALS:
            raise BadEventError(f"it sends {_SIGNALS[signal]}; only logs are taken")
        self.chunk = option.get("chunk")
        return option

    def _unpacked(self, kind: str, data: bytes) -> bytes:
        found = bytearray()
        for piece in unpacked(kind, [data]):
            found += piece
            if len(found) > self._most:
                raise BadEventError(f"more than {self._most} bytes, unpacked (max_frame)")
        return bytes(found)

    def _event(self, entry: Any, field: str | None, own: dict[str, str]) -> tuple[dict[str, str], bytes] | None:
        """An event; None of what begins or ends a group."""
        if type(entry) is not list or len(entry) != 2 or type(entry[1]) is not dict:
            raise BadEventError("an event is a time and a record")
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
