"""Define the LogGroup message for the protobuf library, independent of the encoder."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto


def _message(file: Any, name: str, fields: list[tuple[str, int, int, int, str]]) -> None:
    message = file.message_type.add(name=name)
    for field, number, label, kind, type_name in fields:
        added = message.field.add(name=field, number=number, label=label, type=kind)
        if type_name:
            added.type_name = f".tests.{type_name}"


def _build() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="tests_log_group.proto", package="tests", syntax="proto2")
    pair = [
        ("Key", 1, _F.LABEL_REQUIRED, _F.TYPE_BYTES, ""),
        ("Value", 2, _F.LABEL_REQUIRED, _F.TYPE_BYTES, ""),
    ]
    _message(file, "Content", pair)
    _message(file, "LogTag", pair)
    _message(
        file,
        "Log",
        [
            ("Time", 1, _F.LABEL_REQUIRED, _F.TYPE_UINT32, ""),
            ("Contents", 2, _F.LABEL_REPEATED, _F.TYPE_MESSAGE, "Content"),
            ("Time_ns", 4, _F.LABEL_OPTIONAL, _F.TYPE_FIXED32, ""),
        ],
    )
    _message(
        file,
        "LogGroup",
        [
            ("Logs", 1, _F.LABEL_REPEATED, _F.TYPE_MESSAGE, "Log"),
            ("Topic", 3, _F.LABEL_OPTIONAL, _F.TYPE_BYTES, ""),
            ("Source", 4, _F.LABEL_OPTIONAL, _F.TYPE_BYTES, ""),
            ("LogTags", 6, _F.LABEL_REPEATED, _F.TYPE_MESSAGE, "LogTag"),
        ],
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.LogGroup"))


LogGroup = _build()


def contents_of(body: bytes) -> list[list[tuple[bytes, bytes]]]:
    """Return the logs of a LogGroup, as lists of (key, value) pairs."""
    group = LogGroup()
    group.ParseFromString(body)
    return [[(content.Key, content.Value) for content in log.Contents] for log in group.Logs]
