"""Stores the plan of an exactly-once job in its checkpoint directory, before anything is sent.

``loghub-producer-plan.json`` holds the portions, and the files that could not be read. A job that is restarted with the
same checkpoint ships these portions, and searches for no others. ``loghub-producer-ended.txt`` gets a line with the
number of each portion that is acknowledged as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .errors import InputError
from .files.log_file import LogFile
from .files.plan import Split
from .files.whole import read_checked, write_checked
from .portions import Portion

PLAN_FILE = "loghub-producer-plan.json"
ENDED_FILE = "loghub-producer-ended.txt"

# Digits of each number, so that a partly written number is detected.
_DIGITS = 10


class PlanFile:
    """A plan with its completed portions, as a context manager.

    :param checkpoint: the checkpoint directory.
    :ivar unread: (path, reason) of named or found paths that cannot be read.
    :raises InputError: it cannot be read or written.
    """

    def __init__(self, checkpoint: str) -> None:
        self._folder = Path(checkpoint)
        self.unread: tuple[tuple[str, str], ...] = ()
        try:
            # Unbuffered: bytes that a full disk refused must not be written again on close.
            self._ended = open(self._folder / ENDED_FILE, "ab+", buffering=0)  # noqa: PTH123, SIM115  # closed by __exit__
        except OSError as error:
            raise self._not_written(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.close()

    def read(self) -> list[Portion] | None:
        """Return the planned portions; None if the job is new.

        :raises InputError: they cannot be read.
        """
        file = self._folder / PLAN_FILE
        try:
            if not file.exists():
                return None
            planned = read_checked(file)
            self.unread = tuple((str(path), str(reason)) for path, reason in planned["unread"])
            return [_portion(item) for item in planned["portions"]]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"the plan of the checkpoint cannot be read: {file}: {error!r}") from error

    def write(self, portions: Sequence[Portion], unread: Sequence[tuple[str, str]] = ()) -> None:
        """Write the portions, and sync them to the disk.

        :param unread: (path, reason) of the paths that are in no portion.
        :raises InputError: they cannot be written.
        """
        self.unread = tuple(unread)
        planned = {"portions": [_item(portion) for portion in portions], "unread": self.unread}
        write_checked(self._folder / PLAN_FILE, planned)

    def ended(self) -> set[int]:
        """Return the numbers of the completed portions."""
        self._ended.seek(0)
        lines = self._ended.read().split(b"\n")
        if lines[-1]:
            self._write(b"\n")  # A partly written number: the machine died.
        return {int(line) for line in lines if len(line) == _DIGITS}

    def end(self, numbers: Iterable[int]) -> None:
        """Add completed portions. If the machine dies before they are on disk, they are sent again, but not stored
        again.

        :raises InputError: they cannot be written.
        """
        self._write(b"".join(b"%0*d\n" % (_DIGITS, number) for number in numbers))

    def _write(self, lines: bytes) -> None:
        try:
            while lines:
                lines = lines[self._ended.write(lines) :]
        except OSError as error:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> InputError:
        return InputError(f"the checkpoint cannot be written: {self._folder / ENDED_FILE}: {error.strerror}")


def _item(portion: Portion) -> dict[str, object]:
    return {"run": portion.run, "number": portion.number, "splits": [astuple(split) for split in portion.splits]}


def _portion(item: dict[str, Any]) -> Portion:
    splits = tuple(Split(LogFile(*file), *rest) for file, *rest in item["splits"])
    return Portion(splits, (), item["run"], item["number"])
