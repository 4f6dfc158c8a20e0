"""gRPC as OTLP uses it: methods, statuses translated to those of HTTP, and pauses that a server asks for.

Sources and sinks decide by HTTP's statuses (:data:`STATUSES`). ``RESOURCE_EXHAUSTED`` without ``RetryInfo`` means that
a message is too large, or that the server has no room. Only the libraries' messages differ. Specification: OTLP,
"OTLP/gRPC Response".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...model.errors import ConfigError
from ...text.extras import how_to_install, is_installed

#: Signals of requests, by the methods that export them.
METHODS: Mapping[str, str] = {
    f"/opentelemetry.proto.collector.{name}.v1.{name.capitalize()}Service/Export": signal
    for name, signal in (("logs", "logs"), ("trace", "traces"), ("metrics", "metrics"))
}
#: The method that exports logs.
OF_LOGS = next(iter(METHODS))
#: The status of HTTP for each code of gRPC, as those of Google's APIs.
STATUSES: Mapping[str, int] = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 412,
    "OUT_OF_RANGE": 416,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_TOO_LARGE, _INTERNAL = 413, 500
#: Messages about a message that is too large, of the libraries of C, Go, Java, .NET and Rust.
_OF_TOO_LARGE = re.compile("larger than max|exceeds .*max|too large", re.IGNORECASE)
_DETAILS = "grpc-status-details-bin"


def check_grpc() -> None:
    """:raises ConfigError: a package for ``transport = "grpc"`` is missing."""
    for package, name in (("grpc", "grpcio"), ("google.rpc", "googleapis-common-protos")):
        if not is_installed(package):
            rule = f"grpc needs the Python package {name}: {how_to_install('otlp-grpc')}"
            raise ConfigError("transport", rule, "grpc")


def retry_metadata(code: int, message: str, seconds: float) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata that asks a client to send a call again.

    :param code: the number of the status.
    :param seconds: the pause before the next attempt.
    """
    from google.rpc.error_details_pb2 import RetryInfo  # an extra
    from google.rpc.status_pb2 import Status

    info, status = RetryInfo(), Status(code=code, message=message)
    info.retry_delay.FromNanoseconds(round(seconds * 1e9))
    status.details.add().Pack(info)
    # Python's exporters read only the second one.
    return (_DETAILS, status.SerializeToString()), ("google.rpc.retryinfo-bin", info.SerializeToString())


def pause_of(metadata: Iterable[tuple[str, Any]]) -> float | None:
    """Return the seconds of a pause that trailing metadata asks for; None if it asks for none."""
    from google.protobuf.message import DecodeError
    from google.rpc.error_details_pb2 import RetryInfo  # an extra
    from google.rpc.status_pb2 import Status

    info = RetryInfo()
    try:
        details = [each for name, value in metadata if name == _DETAILS for each in Status.FromString(value).details]
        if any(each.Unpack(info) for each in details):
            seconds: float = info.retry_delay.ToNanoseconds() / 1e9
            return max(0.0, seconds)
    except DecodeError:
        return None
    return None


def status_of(code: str, details: str, pause: float | None) -> int:
    """Return the status of HTTP for a code of gRPC.

    :param details: the server's message.
    :param pause: the result of :func:`pause_of`.
    """
    if code in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE") and pause is None and _OF_TOO_LARGE.search(details):
        return _TOO_LARGE
    return STATUSES.get(code, _INTERNAL)
