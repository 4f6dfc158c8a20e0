"""Events of Flume's Thrift sinks and clients, over TCP, with TLS or without. Modelled on Flume's ``ThriftSource``.

A call is one batch. ``OK`` means that every required channel has committed it. While a channel is full the answer is
``FAILED``, and the client tries again. Framed calls of the compact and of the binary protocol are accepted, and
answered in the same protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..config.flume_keys import without_needless
from ..protocols.reckoning import Reckoning
from .calls import CallOptions, CallSource, Conversation, Incoming

if TYPE_CHECKING:
    from ..protocols.thrift import Call


class ThriftSource(CallSource):
    """Source of events from Flume's Thrift sinks and clients. Modelled on Flume's ``ThriftSource``."""

    needs: ClassVar = {"thrift": "thrift"}

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(CallOptions):
        """Options of Flume's ``thrift``, and limits."""

        @staticmethod
        def translate_flume(texts: Mapping[str, str]) -> dict[str, str]:
            """Drop options without effect: each connection has a thread, and both protocols are accepted."""
            return without_needless(texts, ("threads", "protocol"))

    def _conversation(self) -> Conversation:
        return _ThriftConversation()


class _ThriftConversation(Conversation):
    def receive(self, incoming: Incoming) -> bytes:
        from ..protocols.thrift import HEADER_BYTES, size_of  # thrift is an extra

        size = size_of(incoming.exactly(HEADER_BYTES))
        incoming.expect(size)
        return incoming.exactly(size)

    def read(self, frame: bytes, reckoning: Reckoning) -> Call:
        from ..protocols.thrift import read_call

        return read_call(frame, reckoning)

    def answer(self, call: Call, *, taken: bool) -> bytes:
        from ..protocols.thrift import Status, answer

        return answer(call, Status.OK if taken else Status.FAILED)
