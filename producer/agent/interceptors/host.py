"""This machine's address or name as a header. Source: Flume's ``HostInterceptor``."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_header

#: Addresses that are meant for documents: nobody has them, and nothing is sent to them.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class HostInterceptor:
    """See the module; asked for once, when it is made."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Flume's ``host``'s."""

        host_header: str = option("host", doc="the header")
        use_ip: bool = option(True, flume="useIP", doc="the address, not the name")
        preserve_existing: bool = option(False, doc="leave it to events that have it")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._host = _address() if options.use_ip else socket.getfqdn()

    def intercept(self, batch: EventBatch) -> EventBatch:
        """See :class:`~..interfaces.Interceptor`."""
        return with_header(batch, self._options.host_header, self._host, self._options.preserve_existing)


def _address() -> str:
    """The address that this machine would speak from to others; the loopback's, where there are no others."""
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
