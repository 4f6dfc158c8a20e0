"""The conformance tests for sources and sinks that other agents and programs reach by network."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pytest

from producer.agent.events.interfaces import Source
from producer.agent.sources import listening
from producer.agent.testing import SinkConformance, SourceConformance
from tests.agent.sources.listeners import serving
from tests.support.waiting import eventually

from .components import made


class ListeningSourceConformance(SourceConformance):
    """A listening source, whose client sends unacknowledged events again."""

    source: ClassVar[tuple[str, Mapping[str, Any]]]
    resumes = False
    _source: Any = None
    _acknowledged = 0
    _over = False

    @abstractmethod
    def send(self, address: tuple[str, int], number: int, body: bytes) -> None:
        """Send an event until it is acknowledged."""

    @pytest.fixture(autouse=True)
    def _quick(self) -> Iterator[None]:
        with patch.object(listening, "_PAUSE_SECONDS", 0.02):
            yield

    def make(self) -> Source:
        kind, options = self.source
        self._source = made("sources", kind, port=0, **options)
        return self._source  # type: ignore[no-any-return]

    def feed(self, number: int) -> bytes:
        body = b"event %d" % number
        with suppress(AssertionError):  # the source may have ended
            eventually(lambda: self._over or self._is_sent(number, body))
        return body

    def _is_sent(self, number: int, body: bytes) -> bool:
        """Return True if the running source has acknowledged the event."""
        if self._source is None or not self._source.listening.wait(0.05):
            return False
        with suppress(Exception):
            self.send(self._source.addresses[0], number, body)
            self._acknowledged += 1
            return True
        return False

    def teardown_method(self) -> None:
        self._over = True  # ends all clients

    def acknowledged(self) -> int:
        return self._acknowledged

    def test_a_restarted_source_continues(self, tmp_path: Path) -> None:
        original = self.make

        def make() -> Source:
            self._source = None  # events fed from here on wait for the next source
            return original()

        self.make = make  # type: ignore[method-assign]
        super().test_a_restarted_source_continues(tmp_path)


class ReceivedSinkConformance(SinkConformance):
    """A sink whose receiver is our source of the same type."""

    receiver: ClassVar[tuple[str, Mapping[str, Any]]]

    @pytest.fixture(autouse=True)
    def _receiver(self) -> Iterator[None]:
        kind, options = self.receiver
        with serving(kind, **options) as self._served:
            self.address = self._served.address
            yield

    def delivered(self) -> list[bytes]:
        return self._served.outlet.bodies

    def break_destination(self) -> Callable[[], None]:
        self._served.outlet.room.clear()
        return self._served.outlet.room.set
