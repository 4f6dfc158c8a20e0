"""Add this machine's address or name as a header. Modelled on Flume's ``HostInterceptor``."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from ...model.options import option
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .texts import with_header

#: Addresses reserved for documentation; nothing is sent to them.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


class HostInterceptor:
    """Interceptor that adds this machine's address or name. Modelled on Flume's ``HostInterceptor``."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Options of Flume's ``host``."""

        host_header: str = option("host", doc="header for the host")
        use_ip: bool = option(True, flume="useIP", doc="use the address, not the name")
        preserve_existing: bool = option(False, doc="keep the header of events that have it")

    def __init__(self, options: Options, context: Context) -> None:
        self._options = options
        self._host = _address() if options.use_ip else socket.getfqdn()

    def intercept(self, batch: EventBatch) -> EventBatch:
        return with_header(batch, self._options.host_header, self._host, self._options.preserve_existing)


def _address() -> str:
    """Return the address from which this machine reaches others; the loopback address if it reaches none."""
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"
