"""A taildir source without its thread: the test runs each scan, and sets the time."""

import itertools
from pathlib import Path
from typing import Any, ClassVar

from producer.agent.config.options import read_options
from producer.agent.events.batch import EventBatch
from producer.agent.events.counters import Counters
from producer.agent.events.interfaces import Context
from producer.agent.flow.channel import BatchChannel
from producer.agent.flow.outlet import SourceOutlet
from producer.agent.sources.taildir import TaildirSource
from producer.agent.sources.taildir.follower import Follower
from producer.runtime.clock import Stop
from producer.testing import ManualClock

from ..doubles import memory_channel, outlet_to, taken_batches


class Tail:
    """A taildir source, with one memory channel or several."""

    made: ClassVar[list["Tail"]] = []

    def __init__(self, folder: Path, *paths: str, channels: int = 1, **options: Any) -> None:
        self.logs, self._state = folder / "logs", folder / "state"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.clock = ManualClock()
        self.stop = Stop(self.clock)
        given = {"paths": tuple(paths) or (str(self.logs / "*"),), "settle": 10.0, **options}
        if "file_groups" in options:
            del given["paths"]
        self.options = read_options(TaildirSource.Options, given, "sources.t")
        names = [f"c{number}" for number in range(channels)]
        self.channels = {name: self._channel(name) for name in names}
        self._follower: Follower | None = None
        self.counters = Counters()
        self.outlet = self._outlet()
        Tail.made.append(self)

    def _channel(self, name: str) -> BatchChannel:
        return memory_channel(self._state, name, self.clock)

    def _outlet(self) -> SourceOutlet:
        return outlet_to("t", self._state, self.channels, self.clock)

    @property
    def follower(self) -> Follower:
        if self._follower is None:
            context = Context("a", "t", self._state / "t", self.counters, self.clock)
            self._follower = Follower(self.options, context, self.outlet, self.stop)
        return self._follower

    def look(self, seconds: float = 0.0) -> None:
        """Advance the clock, and scan until there is nothing new."""
        self.clock.advance(seconds)
        while self.follower.look():
            pass

    def batches(self, channel: str = "c0") -> list[EventBatch]:
        """Take the batches that a channel got since the last call, as delivered."""
        return taken_batches(self.channels[channel])

    def lines(self, channel: str = "c0") -> list[bytes]:
        """Take the bodies that a channel got since the last call, as delivered."""
        return list(itertools.chain.from_iterable(batch.bodies() for batch in self.batches(channel)))

    def seen(self, seconds: float = 0.0) -> list[bytes]:
        self.look(seconds)
        return self.lines()

    def restart(self) -> None:
        """Stop the source; the next scan is that of a new one."""
        self.close()
        self.outlet = self._outlet()

    def kill(self) -> None:
        """End the source as ``kill -9`` does: only the disk, and what the channels committed, remain."""
        if self._follower is not None:
            self._follower._readers.close()
            self._follower._known._notes.close()
        self._follower = None

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        self._follower = None


class Writer:
    """Writer of unique lines."""

    def __init__(self, path: Path, label: str = "") -> None:
        self.path, self._label = path, label or path.name
        self._numbers = itertools.count()

    def lines(self, count: int) -> list[bytes]:
        lines = [b"%s line %06d of a log that has some text" % (self._label.encode(), n) for n in self._next(count)]
        self.append(b"".join(line + b"\n" for line in lines))
        return lines

    def append(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def _next(self, count: int) -> list[int]:
        return list(itertools.islice(self._numbers, count))
