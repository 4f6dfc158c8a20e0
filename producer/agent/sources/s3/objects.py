"""ObjectBytes: the bytes of one object as a stream that survives broken connections."""

from __future__ import annotations

import hashlib
import io
import json
from datetime import datetime
from functools import partial
from typing import Any

from ....runtime.backoff import Backoff
from ....runtime.clock import Stop
from ....text.printable import shown
from .clients import S3Error, StoppedError, UnreadableError, connection_errors, translated, until_stopped
from .notifications import ObjectRef

#: The offset of an object that was read completely.
WHOLE = 1 << 62
#: Bytes per read, which costs the start of a thread.
_PIECE = 1 << 17
#: Maximum number of broken connections in a row without a byte; seconds of the pauses after them.
_MOST_BROKEN, _FIRST_PAUSE, _LONGEST_PAUSE = 5, 0.1, 2.0
#: HTTP's compressions without a signature in the first bytes.
_UNTOLD = ("br", "deflate", "compress", "x-compress")


def place_of(bucket: str, key: str) -> str:
    """Return an object's address, for messages."""
    return f"s3://{bucket}/{shown(key)}"


def name_of(bucket: str, key: str, etag: str, modified: datetime) -> str:
    """Return the name of an object's position. Names sort by the objects' times."""
    seconds = int(modified.timestamp())
    known = json.dumps([bucket, key, etag.strip('"'), seconds]).encode()
    return f"{seconds:012x}-{hashlib.sha256(known).hexdigest()[:32]}"


class ObjectBytes(io.BufferedIOBase):
    """Reader of an object. After a broken connection it resumes at the next byte, if the object is unchanged.

    Each method raises :class:`S3Error` if the object cannot be read, and :class:`StoppedError` if ``stop`` is set
    before it has the bytes.

    :param client: the client of S3.
    :param stop: ends requests, and the pauses after broken connections.
    :ivar size: bytes of the object.
    :ivar position: the offset of the next byte.
    """

    def __init__(self, client: Any, ref: ObjectRef, stop: Stop) -> None:
        self._client, self.ref, self._stop = client, ref, stop
        self.place = place_of(ref.bucket, ref.key)
        self._given = {"Bucket": ref.bucket, "Key": ref.key} | ({"VersionId": ref.version} if ref.version else {})
        self._connection_errors = connection_errors()
        self._body: Any = None
        self._ahead, self.position = b"", 0
        answer = self._get()
        with translated(self.place):
            self._body, self.size = answer["Body"], int(answer["ContentLength"])
            self.etag, self.modified = str(answer["ETag"]), answer["LastModified"]
        encoding = answer.get("ContentEncoding", "")
        if any(each.strip().lower() in _UNTOLD for each in encoding.split(",")):
            self.close()
            raise UnreadableError(f"{self.place}: the Content-Encoding {shown(encoding)} is not supported")

    @property
    def name(self) -> str:
        """The name of the object's position."""
        return name_of(self.ref.bucket, self.ref.key, self.etag, self.modified)

    def peek(self, size: int = 0, /) -> bytes:
        """Return the next ``size`` bytes without moving; fewer only at the end."""
        while len(self._ahead) < size and (more := self._piece(self.position + len(self._ahead))):
            self._ahead += more
        return self._ahead[:size]

    def skip_to(self, position: int) -> None:
        """Move to another byte; the next read requests it."""
        if position != self.position:
            self._drop()
            self._ahead, self.position = b"", position

    def read1(self, size: int = -1, /) -> bytes:
        data = self._ahead or self._piece(self.position)
        self._ahead = data[size:] if size >= 0 else b""
        data = data[:size] if size >= 0 else data
        self.position += len(data)
        return data

    def close(self) -> None:
        self._drop()
        super().close()

    def _piece(self, position: int) -> bytes:
        """Return bytes from an offset on, at least one; nothing at the end."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        for attempt in range(1, _MOST_BROKEN + 1):
            if position >= self.size:
                return b""
            if self._stop.is_set():  # a large object is skipped up to its position
                raise StoppedError
            try:
                if self._body is None:
                    self._body = self._get(Range=f"bytes={position}-", IfMatch=self.etag)["Body"]
                data: bytes = until_stopped(partial(self._body.read, _PIECE), self._stop)
                if data:
                    return data
                error: Exception = EOFError(f"the body ended at byte {position} of {self.size}")
            except StoppedError:
                self._body = None  # to close it would wait for the read
                raise
            except self._connection_errors as failure:
                error = failure
            self._drop()
            if attempt < _MOST_BROKEN and self._stop.wait(backoff.next_pause()):
                raise StoppedError
        raise S3Error(f"{self.place}: the connection broke {_MOST_BROKEN} times at byte {position}: {error}") from error

    def _get(self, **more: str) -> Any:
        with translated(self.place, "s3:GetObject"):
            return self._client.get_object(**self._given, **more)

    def _drop(self) -> None:
        """Close the connection."""
        body, self._body = self._body, None
        if body is not None:
            body.close()
