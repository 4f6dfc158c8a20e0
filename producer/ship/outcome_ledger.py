"""What became of the lines of a job: stored, not stored, or in doubt; by file.

A portion that failed is tried again, without the blocks that are stored. A block that was stored in part is sent again,
and so may have had several fates. The best of them counts: what one attempt has stored is stored, whatever became of
the others.
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

#: What names a block: its file, and where in it the block begins. The pieces of a long line are one block.
Place = tuple[str, int]


@dataclass(slots=True)
class _Fate:
    """What became of a block.

    :ivar size: its bytes.
    :ivar lines: how many they are.
    :ivar records: how many records they became; more than lines where a long line came in pieces.
    :ivar stored: records that were acknowledged.
    :ivar in_doubt: records that may be stored.
    """

    size: int = 0
    lines: int = 0
    records: int = 0
    stored: int = 0
    in_doubt: int = 0

    def better(self, other: _Fate) -> _Fate:
        """The best of two attempts."""
        best = _Fate(*map(max, astuple(self), astuple(other)))
        best.in_doubt = min(best.in_doubt, best.records - best.stored)
        return best

    def counted(self) -> tuple[int, int]:
        """Lines that are stored, and lines in doubt."""
        if self.records == self.lines:
            return self.stored, self.in_doubt
        if self.stored == self.records:
            return self.lines, 0
        return 0, self.lines if self.stored or self.in_doubt else 0


@dataclass(slots=True)
class FileFate:
    """What became of a file.

    :ivar path: its path.
    :ivar stored: lines that were acknowledged.
    :ivar not_stored: lines that were read, and not.
    :ivar in_doubt: lines that may be stored.
    :ivar unsent_bytes: bytes of lines that were not read.
    :ivar cut_bytes: bytes of compressed files of which a part was read: how many of them are not sent is unknown.
    :ivar doubtful_bytes: bytes that somebody was sending when he was stopped, or died.
    """

    path: str
    stored: int = 0
    not_stored: int = 0
    in_doubt: int = 0
    unsent_bytes: int = 0
    cut_bytes: int = 0
    doubtful_bytes: int = 0

    def __iadd__(self, other: FileFate) -> Self:
        for name in ("stored", "not_stored", "in_doubt", "unsent_bytes", "cut_bytes", "doubtful_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def complete(self) -> bool:
        """Whether all of it is stored."""
        return not (self.not_stored or self.in_doubt or self.unsent_bytes or self.cut_bytes or self.doubtful_bytes)


def records_of(lines: Block | Line) -> int:
    """Return how many records lines become."""
    return lines.count if isinstance(lines, Block) else 1


class Account:
    """What is known of the blocks of some portions."""

    def __init__(self) -> None:
        self._fates: dict[Place, _Fate] = {}
        self._read: set[Place] = set()
        # By the place where a portion begins, all of which is stored: the lines of each of its ranges.
        self._ended: dict[Place, tuple[int, ...]] = {}

    def begin(self, path: str, lines: Block | Line) -> Place:
        """A block is about to be sent; its place, for what becomes of it."""
        place = path, lines.offset
        fate = self._fates.setdefault(place, _Fate())
        fate.size += len(lines.data)
        fate.records += records_of(lines)
        fate.lines += lines.count if isinstance(lines, Block) else lines.part == 1
        return place

    def read(self, split: Split) -> None:
        """All of a range was read."""
        self._read.add((split.file.path, split.start))

    def store(self, place: Place, records: int) -> None:
        """Records of a block were acknowledged."""
        self._fates[place].stored += records

    def doubt(self, place: Place, records: int) -> None:
        """Records of a block may be stored."""
        self._fates[place].in_doubt += records

    def end(self, portion: Portion) -> None:
        """All of a portion is stored: forget its blocks, or the driver would keep those of the whole job.

        :param portion: the only one that this account is of.
        """
        if portion.splits:
            offsets = self._offsets()
            lines = (self._lines(split, offsets.get(split.file.path, [])) for split in portion.splits)
            self._ended[_begin(portion)] = tuple(lines)
        self._fates.clear()
        self._read.clear()

    def _lines(self, split: Split, offsets: Sequence[int]) -> int:
        return sum(self._fates[split.file.path, offset].lines for offset in _within(split, offsets))

    def __iadd__(self, other: Account) -> Self:
        for place, fate in other._fates.items():
            known = self._fates.get(place)
            self._fates[place] = fate if known is None else known.better(fate)
        self._read |= other._read
        self._ended |= other._ended
        return self

    def files(self, portions: Sequence[Portion], doubtful: Collection[int]) -> list[FileFate]:
        """What became of each file, in the order of the portions.

        :param portions: of the job, all of them.
        :param doubtful: numbers of those of which an attempt ended without an account.
        """
        files: dict[str, FileFate] = {}
        offsets = self._offsets()
        for number, portion in enumerate(portions):
            stored = self._ended.get(_begin(portion)) if portion.splits else None
            for place, split in enumerate(portion.splits):
                path = split.file.path
                file = files.setdefault(path, FileFate(path))
                if stored is not None:
                    file.stored += stored[place]
                else:
                    self._add(file, split, _within(split, offsets.get(path, [])), doubtful=number in doubtful)
        return list(files.values())

    def _offsets(self) -> dict[str, list[int]]:
        """Where the blocks of each file begin, in their order."""
        offsets: dict[str, list[int]] = {}
        for path, offset in sorted(self._fates):
            offsets.setdefault(path, []).append(offset)
        return offsets

    def _add(self, file: FileFate, split: Split, offsets: Sequence[int], *, doubtful: bool) -> None:
        """Add what became of a range to its file."""
        sent = 0
        for offset in offsets:
            fate = self._fates[split.file.path, offset]
            stored, in_doubt = fate.counted()
            if doubtful:
                in_doubt = fate.lines - stored
            file.stored += stored
            file.in_doubt += in_doubt
            file.not_stored += fate.lines - stored - in_doubt
            sent += fate.size
        if (split.file.path, split.start) in self._read:
            return
        # How much of a compressed file a line is, nobody knows.
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
    """Those of the blocks that begin in a range."""
    if split.file.compression is not None:
        return offsets
    return offsets[bisect_left(offsets, split.start) : bisect_left(offsets, split.end)]


class NoAccount(Account):
    """Of what cannot be read again, and may never end, nothing is remembered."""

    def begin(self, path: str, lines: Block | Line) -> Place:
        """The place of a block."""
        return path, lines.offset

    def store(self, place: Place, records: int) -> None:
        """Nothing."""

    def doubt(self, place: Place, records: int) -> None:
        """Nothing."""


class Stored:
    """What earlier attempts at a portion have stored, so that the next one does not send it again.

    :param account: of those attempts.
    """

    def __init__(self, account: Account) -> None:
        self._stored = {place: fate.size for place, fate in account._fates.items() if fate.stored == fate.records}
        self._read: dict[Place, int] = {}

    def has(self, path: str, lines: Block | Line) -> bool:
        """Return True if lines are stored; they come in the order of the file."""
        place = path, lines.offset
        read = self._read[place] = self._read.get(place, 0) + len(lines.data)
        return read <= self._stored.get(place, -1)


def acknowledge(figures: Figures, lines: Block | Line, records: int) -> None:
    """Count lines all records of which were acknowledged."""
    if isinstance(lines, Block):
        figures.lines += lines.count
    else:
        figures.lines += lines.part == 1
        figures.long_lines += lines.part == 1
    figures.line_bytes += lines.text_bytes
    figures.records += records
