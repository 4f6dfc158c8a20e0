"""HTTP requests, their limits and their errors. :mod:`.http_reader` reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from ...runtime.locks import Lock
from ..protocols.fields import unique_names
from ..protocols.reckoning import TooManyEventsError
from .budget import Budget, Holding

#: Lock for parsing: a parsed message takes many times its bytes, so only one is parsed at a time. No I/O under it.
one_at_a_time = Lock()


class RequestError(Exception):
    """Raised for a request that is answered with an error.

    :ivar status: the status of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def refusing(*invalid: type[Exception], prefix: str = "") -> Iterator[None]:
    """Raise a parser's errors as answers during the block.

    :param invalid: the parser's errors for an invalid message.
    :param prefix: the beginning of the message about such an error.
    :raises RequestError: the message is invalid, or has too many events.
    """
    try:
        yield
    except TooManyEventsError as error:
        raise RequestError(413, str(error)) from error
    except invalid as error:
        raise RequestError(400, f"{prefix}{error}") from error


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of requests.

    :ivar body: maximum bytes of a body, packed and unpacked.
    :ivar seconds: maximum time from the first byte to the last.
    :ivar budget: the memory of all requests.
    """

    body: int
    seconds: float
    budget: Budget

    def check(self, size: int) -> None:
        """:raises RequestError: a body of so many bytes is too large."""
        if size > self.body:
            raise RequestError(413, f"the body has more than {self.body} bytes (max_body)")

    def collected(self, request: Request, pieces: Iterable[bytes]) -> bytes:
        """Return the pieces of a body as one, and reserve its bytes.

        :raises RequestError: the body is too large, or no memory is free.
        """
        found = bytearray()  # not a list: a peer may send one byte at a time
        for piece in pieces:
            self.check(len(found) + len(piece))
            self.hold(request, len(piece), received=True)
            found += piece
        return bytes(found)

    def hold(self, request: Request, size: int, *, received: bool = False) -> None:
        """Reserve bytes for a request, until it is released.

        :param received: True for bytes that arrived; False for objects made of them.
        :raises RequestError: no memory is free, or the request exceeds the budget.
        """
        if request.held.size + size > self.budget.size:
            raise RequestError(
                413, f"the request takes more than {self.budget.size} bytes of memory (max_memory): send a smaller one"
            )
        if not request.held.take(size, within_share=received):
            raise RequestError(503, "no memory is free for the request: send it again")


@dataclass(slots=True)
class Request:
    """A request, read up to its body.

    :ivar headers: the kept headers, by their names in lower case.
    :ivar held: its bytes of the budget.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    held: Holding

    @property
    def path(self) -> str:
        """The path of the target."""
        return urlsplit(self.target).path

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the query.

        :raises RequestError: the target is invalid.
        """
        try:
            return unique_names(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))
        except ValueError as error:
            raise RequestError(400, f"invalid target: {error}") from error
