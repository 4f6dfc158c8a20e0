"""Describes the messages of bodies, and builds their classes when it is imported.

Servers and readers use them. Producers do not, so they need no protobuf library.

There is no generated code, as that depends on one version of its runtime. There are three variants of LogGroup, which
differ in their checks and their speed:

* :data:`LogGroup` (proto2) rejects a message without a required field; it does not check strings, and its values are
  bytes.
* :data:`StrictText` (proto3) has the same field numbers; the library rejects a topic, source, key or tag that is not
  UTF-8.
* :data:`FramedLogGroupList` (proto2, nothing required) has bytes instead of text, and each field of a log is the bytes
  of its :data:`Content`. A Python object for each field would take nine tenths of the reading time.

Values are bytes in all variants: the official SDK writes any bytes, and readers decide how to show them.

Source: LogHub protocol, Protobuf; the field numbers of ``SlsLogPackageList`` are those of its batch mode.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_REQUIRED, _OPTIONAL, _REPEATED = _Field.LABEL_REQUIRED, _Field.LABEL_OPTIONAL, _Field.LABEL_REPEATED
_BYTES, _STRING, _UINT32, _FIXED32, _INT32, _INT64, _DOUBLE = (
    _Field.TYPE_BYTES,
    _Field.TYPE_STRING,
    _Field.TYPE_UINT32,
    _Field.TYPE_FIXED32,
    _Field.TYPE_INT32,
    _Field.TYPE_INT64,
    _Field.TYPE_DOUBLE,
)

# A message: its fields as (name, number, label, type or the name of another message).
_Fields = list[tuple[str, int, Any, Any]]


def _log_messages(needed: Any) -> dict[str, _Fields]:
    """Return the five messages of a LogGroup; ``needed`` is the label of required fields."""
    return {
        "Content": [("Key", 1, needed, _STRING), ("Value", 2, needed, _BYTES)],
        "Log": [
            ("Time", 1, needed, _UINT32),
            ("Contents", 2, _REPEATED, "Content"),
            ("Time_ns", 4, _OPTIONAL, _FIXED32),
        ],
        "LogTag": [("Key", 1, needed, _STRING), ("Value", 2, needed, _STRING)],
        "LogGroup": [
            ("Logs", 1, _REPEATED, "Log"),
            ("Category", 2, _OPTIONAL, _STRING),
            ("Topic", 3, _OPTIONAL, _STRING),
            ("Source", 4, _OPTIONAL, _STRING),
            ("MachineUUID", 5, _OPTIONAL, _STRING),
            ("LogTags", 6, _REPEATED, "LogTag"),
        ],
        "LogGroupList": [("LogGroups", 1, _REPEATED, "LogGroup")],
    }


def _framed_messages() -> dict[str, _Fields]:
    """Return the messages for bulk reading: without text to decode, and without an object per field of a log."""
    messages = {
        name: [(field, number, label, _BYTES if kind == _STRING else kind) for field, number, label, kind in fields]
        for name, fields in _log_messages(_OPTIONAL).items()
    }
    messages["Log"][1] = ("Contents", 2, _REPEATED, _BYTES)
    return messages


_PACKAGES: dict[str, _Fields] = {
    "LogPackage": [
        ("data", 1, _REQUIRED, _BYTES),
        ("uncompress_size", 2, _OPTIONAL, _INT32),
        ("compress_type", 3, _OPTIONAL, _INT32),
    ],
    "LogPackageList": [("packages", 1, _REPEATED, "LogPackage")],
}

#: The parts of Prometheus's remote write 1.0 that are read. Text is bytes; the reader checks for UTF-8.
_METRICS: dict[str, _Fields] = {
    "Label": [("name", 1, _OPTIONAL, _BYTES), ("value", 2, _OPTIONAL, _BYTES)],
    "Sample": [("value", 1, _OPTIONAL, _DOUBLE), ("timestamp", 2, _OPTIONAL, _INT64)],
    "TimeSeries": [
        ("labels", 1, _REPEATED, "Label"),
        ("samples", 2, _REPEATED, "Sample"),
        ("histograms", 4, _REPEATED, _BYTES),
    ],
    "WriteRequest": [("timeseries", 1, _REPEATED, "TimeSeries")],
}


def _build(package: str, syntax: str, messages: dict[str, _Fields]) -> dict[str, Any]:
    """Build the classes of ``messages`` in their own pool, as another package may have registered the same names."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax=syntax)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            field = message.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = _Field.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


_checked = _build("loghub.embedded", "proto2", _log_messages(_REQUIRED) | _PACKAGES | _METRICS)
_strict = _build("loghub.embedded.text", "proto3", _log_messages(_OPTIONAL))
_framed = _build("loghub.framed", "proto2", _framed_messages())

#: The logs of one request. The type is ``Any``, as the classes are made at run time.
LogGroup: Any = _checked["LogGroup"]
LogGroupList: Any = _checked["LogGroupList"]
LogPackageList: Any = _checked["LogPackageList"]
WriteRequest: Any = _checked["WriteRequest"]
TimeSeries: Any = _checked["TimeSeries"]
StrictText: Any = _strict["LogGroup"]
FramedLogGroupList: Any = _framed["LogGroupList"]
Content: Any = _framed["Content"]
