r"""Parse a bucket's notifications, also in the envelopes of SNS and EventBridge::

    {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": "a+b.log"}}}]}
    {"Type": "Notification", "Message": "{\"Records\": …}"}
    {"detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "a b.log"}}}
    {"Service": "Amazon S3", "Event": "s3:TestEvent"}

Keys are encoded as in an HTML form, but not those of EventBridge. MinIO writes ``s3:`` before ``eventName``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_plus

_CREATED = "ObjectCreated"
_BRIDGED = "Object Created"


class NotificationError(ValueError):
    """Raised for a message that is not a notification."""


class ObjectRef(NamedTuple):
    """An object to read.

    :ivar version: the version; None for the current one.
    """

    bucket: str
    key: str
    version: str | None = None


def objects_of(body: str) -> list[ObjectRef]:
    """Return the created objects that a message names; none for a test message or another event.

    :raises NotificationError: the message is not a notification.
    """
    message = _json(body)
    if message.get("Type") == "Notification" and isinstance(message.get("Message"), str):
        message = _json(message["Message"])
    try:
        if "detail-type" in message:
            return [_ref(message["detail"], str)] if message["detail-type"] == _BRIDGED else []
        if message.get("Event") == "s3:TestEvent":
            return []
        return [_ref(each["s3"], unquote_plus) for each in message["Records"] if _is_created(each)]
    except (KeyError, TypeError, AttributeError) as error:
        raise NotificationError(f"not a notification of S3: {type(error).__name__}: {error}") from error


def _json(text: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotificationError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise NotificationError("not a JSON object")
    return message


def _is_created(record: Mapping[str, Any]) -> bool:
    name: str = record["eventName"]
    return name.removeprefix("s3:").startswith(_CREATED)


def _ref(part: Mapping[str, Any], decode: Callable[[str], str]) -> ObjectRef:
    bucket, key, version = part["bucket"]["name"], part["object"]["key"], None
    for name in ("versionId", "version-id"):
        version = part["object"].get(name) or version
    texts = [bucket, key] if version is None else [bucket, key, version]
    if not all(isinstance(each, str) and each and _is_encodable(each) for each in texts):
        raise NotificationError("not a notification of S3: bucket, key or version is not text")
    return ObjectRef(bucket, decode(key), version)


def _is_encodable(text: str) -> bool:
    """Return True if UTF-8 can encode the text; half of a surrogate pair cannot be sent."""
    return not any("\ud800" <= sign <= "\udfff" for sign in text)
