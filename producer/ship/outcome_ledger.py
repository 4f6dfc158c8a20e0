"""Records the outcome of each line of a job: stored, not stored, or in doubt.

A failed portion is sent again without its stored blocks. A block that was stored in part is sent again as a whole, so
it may have several outcomes. The best one is used: a record that one attempt has stored is stored.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass
from typing import Self

from .figures import Figures
from .files.plan import Split
from .lines.line import Block, Line
from .portions import Portion

#: The key of a block: its file, and its offset there. The pieces of a long line are one block.
Place = tuple[str, int]


@dataclass(slots=True)
class _BlockOutcome:
    """The outcome of a block.

    :ivar size: its bytes.
    :ivar lines: number of lines.
    :ivar records: number of records; more than lines if a long line was split into pieces.
    :ivar stored: records that were acknowledged.
    :ivar in_doubt: records that may be stored.
    """

    size: int = 0
    lines: int = 0
    records: int = 0
    stored: int = 0
    in_doubt: int = 0

    def better(self, other: _BlockOutcome) -> _BlockOutcome:
        """Return the best outcome of two attempts."""
        best = _BlockOutcome(*map(max, astuple(self), astuple(other)))
        best.in_doubt = min(best.in_doubt, best.records - best.stored)
        return best

    def counted(self) -> tuple[int, int]:
        """Return the number of stored lines, and of lines in doubt."""
        if self.records == self.lines:
            return self.stored, self.in_doubt
        if self.stored == self.records:
            return self.lines, 0
        return 0, self.lines if self.stored or self.in_doubt else 0


@dataclass(slots=True)
class FileOutcome:
    """The outcome of a file.

    :ivar path: its path.
    :ivar stored: lines that were acknowledged.
    :ivar not_stored: lines that were read, but not stored.
    :ivar in_doubt: lines that may be stored.
    :ivar unsent_bytes: bytes of lines that were not read.
    :ivar cut_bytes: size of compressed files that were read in part; the unsent share is unknown.
    :ivar doubtful_bytes: bytes of portions whose task was stopped, or died.
    """

    path: str
    stored: int = 0
    not_stored: int = 0
    in_doubt: int = 0
    unsent_bytes: int = 0
    cut_bytes: int = 0
    doubtful_bytes: int = 0

    def __iadd__(self, other: FileOutcome) -> Self:
        for name in ("stored", "not_stored", "in_doubt", "unsent_bytes", "cut_bytes", "doubtful_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def complete(self) -> bool:
        """True if all lines are stored."""
        return not (self.not_stored or self.in_doubt or self.unsent_bytes or self.cut_bytes or self.doubtful_bytes)


def records_of(lines: Block | Line) -> int:
    """Return the number of records of lines."""
    return lines.count if isinstance(lines, Block) else 1


class Account:
    """The outcomes of the blocks of some portions."""

    def __init__(self) -> None:
        self._blocks: dict[Place, _BlockOutcome] = {}
        self._read: set[Place] = set()
        # The line counts of the ranges of each portion that is stored as a whole, by the portion's start.
        self._ended: dict[Place, tuple[int, ...]] = {}

    def begin(self, path: str, lines: Block | Line) -> Place:
        """Add a block that is about to be sent. Return its key."""
        place = path, lines.offset
        outcome = self._blocks.setdefault(place, _BlockOutcome())
        outcome.size += len(lines.data)
        outcome.records += records_of(lines)
        outcome.lines += lines.count if isinstance(lines, Block) else lines.part == 1
        return place

    def read(self, split: Split) -> None:
        """Note that a range was read to its end."""
        self._read.add((split.file.path, split.start))

    def store(self, place: Place, records: int) -> None:
        """Note that records of a block were acknowledged."""
        self._blocks[place].stored += records

    def doubt(self, place: Place, records: int) -> None:
        """Note that records of a block may be stored."""
        self._blocks[place].in_doubt += records

    def end(self, portion: Portion) -> None:
        """Replace the blocks of a stored portion by line counts, to limit the memory of the driver.

        :param portion: the only portion of this account.
        """
        if portion.splits:
            offsets = self._offsets()
            lines = (self._lines(split, offsets.get(split.file.path, [])) for split in portion.splits)
            self._ended[_begin(portion)] = tuple(lines)
        self._blocks.clear()
        self._read.clear()

    def _lines(self, split: Split, offsets: Sequence[int]) -> int:
        return sum(self._blocks[split.file.path, offset].lines for offset in _within(split, offsets))

    def __iadd__(self, other: Account) -> Self:
        for place, outcome in other._blocks.items():
            known = self._blocks.get(place)
            self._blocks[place] = outcome if known is None else known.better(outcome)
        self._read |= other._read
        self._ended |= other._ended
        return self

    def files(self, portions: Sequence[Portion], doubtful: Collection[int]) -> list[FileOutcome]:
        """Return the outcome of each file, in the order of the portions.

        :param portions: all portions of the job.
        :param doubtful: numbers of the portions with an attempt that ended without an account.
        """
        files: dict[str, FileOutcome] = {}
        offsets = self._offsets()
        for number, portion in enumerate(portions):
            stored = self._ended.get(_begin(portion)) if portion.splits else None
            for place, split in enumerate(portion.splits):
                path = split.file.path
                file = files.setdefault(path, FileOutcome(path))
                if stored is not None:
                    file.stored += stored[place]
                else:
                    self._add(file, split, _within(split, offsets.get(path, [])), doubtful=number in doubtful)
        return list(files.values())

    def _offsets(self) -> dict[str, list[int]]:
        """Return the sorted offsets of the blocks of each file."""
        offsets: dict[str, list[int]] = {}
        for path, offset in sorted(self._blocks):
            offsets.setdefault(path, []).append(offset)
        return offsets

    def _add(self, file: FileOutcome, split: Split, offsets: Sequence[int], *, doubtful: bool) -> None:
        """Add the outcome of a range to its file."""
        sent = 0
        for offset in offsets:
            outcome = self._blocks[split.file.path, offset]
            stored, in_doubt = outcome.counted()
            if doubtful:
                in_doubt = outcome.lines - stored
            file.stored += stored
            file.in_doubt += in_doubt
            file.not_stored += outcome.lines - stored - in_doubt
            sent += outcome.size
        if (split.file.path, split.start) in self._read:
            return
        # The size of a line within a compressed file is unknown.
        left = split.size if split.file.compression is not None else max(0, split.size - sent)
        if doubtful:
            file.doubtful_bytes += left
        elif offsets and split.file.compression is not None:
            file.cut_bytes += left
        else:
            file.unsent_bytes += left


def _begin(portion: Portion) -> Place:
    first = portion.splits[0]
    return first.file.path, first.start


def _within(split: Split, offsets: Sequence[int]) -> Sequence[int]:
    """Return the offsets that are in a range."""
    if split.file.compression is not None:
        return offsets
    return offsets[bisect_left(offsets, split.start) : bisect_left(offsets, split.end)]


class NoAccount(Account):
    """An account that remembers nothing, for input that cannot be read again and may never end."""

    def begin(self, path: str, lines: Block | Line) -> Place:
        return path, lines.offset

    def store(self, place: Place, records: int) -> None:
        pass

    def doubt(self, place: Place, records: int) -> None:
        pass


class Stored:
    """The lines that earlier attempts at a portion have stored, so that the next one skips them.

    :param account: the account of those attempts.
    """

    def __init__(self, account: Account) -> None:
        self._stored = {
            place: outcome.size for place, outcome in account._blocks.items() if outcome.stored == outcome.records
        }
        self._read: dict[Place, int] = {}

    def has(self, path: str, lines: Block | Line) -> bool:
        """Return True if lines are stored; call it in the order of the file."""
        place = path, lines.offset
        read = self._read[place] = self._read.get(place, 0) + len(lines.data)
        return read <= self._stored.get(place, -1)


def acknowledge(figures: Figures, lines: Block | Line, records: int) -> None:
    """Count lines whose records were all acknowledged."""
    if isinstance(lines, Block):
        figures.lines += lines.count
    else:
        figures.lines += lines.part == 1
        figures.long_lines += lines.part == 1
    figures.line_bytes += lines.text_bytes
    figures.records += records
