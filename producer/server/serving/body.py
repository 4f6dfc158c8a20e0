"""The body of one request, which the server reads, discards, or reads by half."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Receive

from ..errors import ClientGoneError
from ..messages import too_large

#: Largest part of an unwanted body that is discarded before the answer, bytes: a client that is still sending reads no
#: answer. Beyond it the answer comes first, and the rest is dropped until the time to receive ends.
MAX_DISCARDED_BYTES = 64 * 1024 * 1024


class Body:
    """The body of one request.

    :ivar declared: size that the headers declare, bytes; None for a chunked body, which declares none.
    :ivar size: bytes that have arrived so far.
    """

    def __init__(self, headers: Mapping[str, str], receive: Receive) -> None:
        self.declared = None if "transfer-encoding" in headers else int(headers.get("content-length", "0"))
        self.size = 0
        self._receive = receive
        self._more = True
        self._expects_continue = headers.get("expect", "").lower() == "100-continue"

    @property
    def is_withheld(self) -> bool:
        """Return True if the client waits for "100 Continue" before it sends the body, and has not got it."""
        return self._expects_continue and self.size == 0 and self._more and self.declared != 0

    async def read(self, limit: int) -> bytes:
        """Read the whole body.

        :param limit: largest permitted size, bytes.
        :raises ApiError: ``PostBodyTooLarge``.
        :raises ClientGoneError: the client disconnected before the end of the body.
        """
        chunks: list[bytes] = []
        while self._more:
            chunks.append(await self._next())
            if self.size > limit:
                raise too_large(self.size, limit)
        return b"".join(chunks)

    async def discard(self) -> None:
        """Read the rest of the body and drop it; does nothing if the body is too large or withheld.

        :raises ClientGoneError: the client disconnected before the end of the body.
        """
        if self.is_withheld or (self.declared or 0) > MAX_DISCARDED_BYTES:
            return
        while self._more and self.size <= MAX_DISCARDED_BYTES:
            await self._next()

    async def discard_half(self) -> None:
        """Read half of the body and drop it.

        :raises ClientGoneError: the client disconnected before half of the body.
        """
        while self._more and self.size < (self.declared or 0) // 2:
            await self._next()

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        chunk: bytes = message.get("body", b"")
        self.size += len(chunk)
        self._more = message.get("more_body", False)
        return chunk
