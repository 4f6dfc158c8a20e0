"""What a request over HTTP may be, and its errors. :mod:`.http_reader` reads it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from ..protocols.fields import unique_names
from .budget import Budget, Holding

#: Held while a body, or another large message, is taken apart: for that time it is many times as large. No I/O then.
one_at_a_time = threading.Lock()


class RequestError(Exception):
    """A request that is answered with an error.

    :ivar status: of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request may be.

    :ivar body: bytes, packed and unpacked.
    :ivar seconds: from its first byte to its last.
    :ivar budget: of all requests.
    """

    body: int
    seconds: float
    budget: Budget

    def holding(self, peer: str) -> Holding:
        """For a request of a peer."""
        return Holding(self.budget, peer)

    def hold(self, request: Request, size: int, *, came: bool = False) -> None:
        """A request needs so many bytes more, until it is released.

        :param came: they came, and are not what is made of that.
        :raises RequestError: there is no memory for it now, or never.
        """
        if request.held.size + size > self.budget.size:
            raise RequestError(
                413, f"the request takes more than {self.budget.size} bytes of memory (max_memory): send a smaller one"
            )
        if not request.held.take(size, within_share=came):
            raise RequestError(503, "too many requests at a time: send this one again")


@dataclass(slots=True)
class Request:
    """A request, read up to its body.

    :ivar headers: those that are wanted, by their names in lower case.
    :ivar held: its bytes of the budget.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    held: Holding

    @property
    def parameters(self) -> dict[str, str]:
        """Of the query.

        :raises RequestError: the target is none.
        """
        try:
            return unique_names(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))
        except ValueError as error:
            raise RequestError(400, f"no target: {error}") from error
