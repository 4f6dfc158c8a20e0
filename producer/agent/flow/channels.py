"""Build an agent's channels from its configuration: memory, file and spillable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...channels import FileChannel, MemoryChannel, SpillableChannel
from ...channels.file.options import LEAST_SEGMENT
from ...channels.file.store.encryption import FileKeys, check_available
from ...channels.file.store.lost import LostEvent, OnLost
from ...channels.file.store.pointers import MOST_OFFSET
from ...model.errors import ConfigError
from ...model.interfaces import Channel, Event
from ...model.options import option
from ...runtime.loggers import get_logger
from ..events.batch import Position
from ..events.event_format import count_of, position_of
from ..events.interfaces import Context
from ..ledger.number_epochs import kept_origins, new_origins
from ..ledger.ranges import Ranges
from .channel import BatchChannel

_log = get_logger("loghub.agent.channel")

#: The directory of a channel's events, below its state.
EVENTS = "events"
#: The minimum seconds between two syncs.
LEAST_INTERVAL = 0.001
#: Our directory below one of Flume's.
_BELOW = "loghub-agent"
#: Flume's keys without effect here.
_NEEDLESS = frozenset(
    {
        "backupCheckpointDir",
        "checkpointOnClose",
        "compressBackupCheckpoint",
        "use-fast-replay",
        "use-log-replay-v1",
        "write-timeout",
    }
)
#: Flume's keys of the halves of a spillable channel, without effect or translated.
_OF_HALVES = frozenset(
    {
        "avgEventSize",
        "byteCapacityBufferPercentage",
        "memoryCapacity",
        "overflowCapacity",
        "overflowDeactivationThreshold",
        "overflowTimeout",
    }
)
_BYTES = "the maximum bytes of events with their headers"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    capacity: int | None = option(None, least=1, doc="the maximum number of events; empty to limit bytes only")
    transaction_capacity: int | None = option(
        None, least=1, doc="accepted for Flume's files, without effect: a batch is one transaction"
    )
    keep_alive: float = option(3.0, flume="keep-alive", least=0, doc="seconds that a put waits for room")


class _Builder:
    def __init__(self, options: Any, context: Context) -> None:
        self._options, self._context = options, context


class MemoryChannelBuilder(_Builder):
    """A channel in memory. After a crash, sources that can do so read its events again."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(_Common):
        """Options of Flume's memory channel."""

        byte_capacity: int = option(64 << 20, least=1, unit="bytes", doc=_BYTES)
        byte_capacity_buffer_percentage: int = option(
            20, least=0, most=99, doc="the share of the bytes for headers, per cent"
        )

        def holds(self) -> int:
            """Return the maximum bytes that it holds."""
            return self.byte_capacity

    def open(self) -> BatchChannel:
        """Open the channel, empty."""
        options, context = self._options, self._context
        channel = MemoryChannel(
            byte_capacity=options.byte_capacity,
            admit_larger=True,
            byte_capacity_buffer_percentage=options.byte_capacity_buffer_percentage,
            keep_alive=options.keep_alive,
            name=context.name,
            clock=context.clock,
        )
        return _forgetting(channel, options, context)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnDisk(_Common):
    directory: Path | None = option(
        None, flume="checkpointDir", doc="the channel's own directory; by default below the agent's state"
    )
    data_directories: tuple[Path, ...] = option((), flume="dataDirs", doc="directories for segments, if elsewhere")
    byte_capacity: int | None = option(None, least=1, unit="bytes", doc=_BYTES)
    fsync: Literal["commit", "os"] | float = option(
        "commit", least=LEAST_INTERVAL, most=86_400, unit="seconds", doc="when commits are synced to the disk"
    )
    segment_size: int = option(
        64 << 20,
        flume="maxFileSize",
        least=LEAST_SEGMENT,
        most=MOST_OFFSET,
        unit="bytes",
        doc="bytes of a segment file",
    )
    checkpoint_interval: float = option(30.0, scale=0.001, least=0.001, doc="seconds between checkpoints")
    dual_checkpoints: bool = option(
        True, flume="useDualCheckpoints", doc="True to keep a second copy of the checkpoint"
    )
    minimum_free_space: int = option(
        64 << 20, flume="minimumRequiredSpace", least=0, unit="bytes", doc="bytes of the disk that puts leave free"
    )
    key_file: Path | None = option(
        None, doc="JSON file with keys, as for FileKeys; events are encrypted by AES-256-GCM"
    )

    @staticmethod
    def translate_flume(values: Mapping[str, str]) -> dict[str, str]:
        """Translate Flume's keys. Directories get a subdirectory for us, since Flume's own files are in them."""
        given = {key: value for key, value in values.items() if key not in _NEEDLESS}
        places = {
            key: re.split(r"[,\s]+", given[key].strip(", ")) for key in ("checkpointDir", "dataDirs") if key in given
        }
        given |= {key: " ".join(f"{path}/{_BELOW}" for path in paths) for key, paths in places.items()}
        if given.pop("fsyncPerTransaction", "true").strip().lower() == "false":
            given["fsync"] = given.pop("fsyncInterval", "5")
        given.pop("fsyncInterval", None)
        return given

    def missing(self) -> Iterator[ConfigError]:
        """Yield problems with the key file, for a check of the configuration."""
        try:
            self.keys()
        except ConfigError as error:
            yield error

    def keys(self) -> FileKeys | None:
        """Return the encryption keys; None for no encryption.

        :raises ConfigError: if the file has no keys, or ``cryptography`` is not installed.
        """
        if self.key_file is None:
            return None
        try:
            check_available()
            return FileKeys(self.key_file)
        except ConfigError as error:
            raise ConfigError("key_file", error.rule, str(self.key_file)) from error


class FileChannelBuilder(_Builder):
    """A channel on the disk. Its events survive a crash."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(_OnDisk):
        """Options of Flume's file channel."""

    def open(self) -> BatchChannel:
        """Open the channel, with the events of an earlier run.

        :raises ChannelError: if the directory cannot be used.
        """
        options, context = self._options, self._context
        lost = _Lost()
        channel = _file_channel(options, context, lost)
        counted = Counted(channel.peek(lost.waiting.append), join=True)
        assert channel.notes is not None  # noqa: S101  # None only in tests with a disk of their own
        following = channel._next_sequence
        lowest = following if counted.lowest is None else counted.lowest
        return lost.attach(
            BatchChannel(
                channel,
                context.clock,
                keeps=True,
                capacity=options.capacity,
                keep_alive=options.keep_alive,
                held=counted.events,
                found=counted.found,
                leaves_free=options.minimum_free_space,
                origins=kept_origins(context.name, channel.notes, lowest, following, channel.notes.make_identity()),
            )
        )


class SpillableChannelBuilder(_Builder):
    """A channel in memory that spills to the disk. It is as safe as memory."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options(_OnDisk):
        """Options of Flume's spillable memory channel."""

        byte_capacity: int | None = option(
            None, flume="overflowByteCapacity", least=1, unit="bytes", doc="the maximum bytes on the disk"
        )
        memory_bytes: int = option(
            64 << 20, flume="byteCapacity", least=1, unit="bytes", doc="the maximum bytes in memory"
        )

        def holds(self) -> int:
            """Return the maximum bytes in memory."""
            return self.memory_bytes

        @staticmethod
        def translate_flume(values: Mapping[str, str]) -> dict[str, str]:
            """Translate Flume's keys. The two capacities in events become one number."""
            halves = [values.get(key, "") for key in ("memoryCapacity", "overflowCapacity")]
            given = {key: value for key, value in values.items() if key not in _OF_HALVES}
            if all(half.strip().isdecimal() for half in halves):
                given["capacity"] = str(sum(map(int, halves)))
            return _OnDisk.translate_flume(given)

    def open(self) -> BatchChannel:
        """Open the channel, with the events that an earlier run spilled.

        :raises ChannelError: if the directory cannot be used.
        """
        options, context = self._options, self._context
        memory = MemoryChannel(byte_capacity=options.memory_bytes, name=context.name, clock=context.clock)
        lost = _Lost()
        overflow = _file_channel(options, context, lost)
        spilled = overflow.peek(lost.waiting.append)
        channel = SpillableChannel(memory, overflow, name=context.name)
        return lost.attach(_forgetting(channel, options, context, spilled))


class _Lost:
    """Collects damaged events until a channel is attached, then forwards them to it.

    :ivar waiting: damaged events still in the channel, which a take will find.
    """

    def __init__(self) -> None:
        self._found: list[LostEvent] = []
        self._others = 0
        self._channel: BatchChannel | None = None
        self.waiting: list[LostEvent] = []

    def __call__(self, events: Sequence[LostEvent], others: int) -> None:
        if self._channel is None:
            self._found += events
            self._others += others
        else:
            self._channel.lose(events, others)

    def attach(self, channel: BatchChannel) -> BatchChannel:
        """Attach the channel, report what was collected, and return the channel."""
        self._channel = channel
        if self._found or self._others or self.waiting:
            channel.losses.found_at_opening(self._found, self._others, self.waiting)
        return channel


class Counted:
    """The content of a channel when it is opened.

    :param join: True to join adjacent positions in ``found``.
    :ivar events: the events of all batches.
    :ivar lowest: the number of the first batch; None if there is none.
    :ivar found: the positions of the batches.
    """

    def __init__(self, events: Iterable[Event], *, join: bool) -> None:
        self.events, self.found = 0, list[Position]()
        self.lowest: int | None = None
        joined: dict[str, Ranges] = {}
        for event in events:
            self.events += count_of(event)
            self.lowest = event.sequence if self.lowest is None else self.lowest
            position = position_of(event)
            if position is not None and join:
                joined.setdefault(position.name, Ranges()).add(position.start, position.end)
            elif position is not None:
                self.found.append(position)
        self.found += [Position(name, end, "", start) for name, ranges in joined.items() for start, end in ranges]


def _file_channel(options: _OnDisk, context: Context, lost: OnLost) -> FileChannel:
    directory = options.directory or context.state / EVENTS
    directory.parent.mkdir(parents=True, exist_ok=True)
    return FileChannel(
        directory,
        byte_capacity=options.byte_capacity,
        admit_larger=True,
        keep_alive=options.keep_alive,
        fsync=options.fsync,
        segment_size=options.segment_size,
        checkpoint_interval=options.checkpoint_interval,
        dual_checkpoints=options.dual_checkpoints,
        minimum_free_space=options.minimum_free_space,
        data_directories=options.data_directories,
        encryption=options.keys(),
        name=context.name,
        lost=lost,
        clock=context.clock,
    )


def _forgetting(channel: Channel, options: _Common, context: Context, spilled: Iterable[Event] = ()) -> BatchChannel:
    """Build a channel whose events and numbers are lost with the process, except spilled ones."""
    counted = Counted(spilled, join=False)
    return BatchChannel(
        channel,
        context.clock,
        keeps=False,
        capacity=options.capacity,
        keep_alive=options.keep_alive,
        held=counted.events,
        found=counted.found,
        origins=new_origins(),
    )
