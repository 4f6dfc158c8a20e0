"""The body of one request on its way in: read, thrown away, or read by half."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Receive

from ..errors import ClientGoneError
from ..messages import too_large

#: Of a body that is not wanted, this much is thrown away before the answer: a client that is still sending reads none.
#: Beyond it the answer comes first, and what follows is dropped until the time to receive is over.
MAX_DISCARDED_BYTES = 64 * 1024 * 1024


class Body:
    """One body.

    :ivar declared: bytes that the headers promise; None for a body in chunks, which promises nothing.
    :ivar size: bytes that have arrived so far.
    """

    def __init__(self, headers: Mapping[str, str], receive: Receive) -> None:
        self.declared = None if "transfer-encoding" in headers else int(headers.get("content-length", "0"))
        self.size = 0
        self._receive = receive
        self._more = True
        self._to_be_asked_for = headers.get("expect", "").lower() == "100-continue"

    @property
    def is_withheld(self) -> bool:
        """Whether the client keeps the body back until it is told to go on, and was not told."""
        return self._to_be_asked_for and self.size == 0 and self._more and self.declared != 0

    async def read(self, limit: int) -> bytes:
        """All of it.

        :param limit: bytes that it may have.
        :raises ApiError: ``PostBodyTooLarge``.
        :raises ClientGoneError: it never became whole.
        """
        chunks: list[bytes] = []
        while self._more:
            chunks.append(await self._next())
            if self.size > limit:
                raise too_large(self.size, limit)
        return b"".join(chunks)

    async def discard(self) -> None:
        """Take the rest of it from the client and keep nothing, unless there is too much of it, or it is withheld.

        :raises ClientGoneError: it never became whole.
        """
        if self.is_withheld or (self.declared or 0) > MAX_DISCARDED_BYTES:
            return
        while self._more and self.size <= MAX_DISCARDED_BYTES:
            await self._next()

    async def discard_half(self) -> None:
        """Take half of it and keep nothing.

        :raises ClientGoneError: not even half of it arrived.
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
