"""The plan of a job that stores each line once, in its checkpoint directory, written before anything is sent.

``loghub-producer-plan.json`` has the portions, and the files that could not be read and are in none of them; a job that
is started again with the same checkpoint ships these portions, and looks for no others. ``loghub-producer-ended.txt``
gets a line for each portion all of which is acknowledged: its number.
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

# Of each number, so that half of one is told from a whole one.
_DIGITS = 10


class PlanFile:
    """A plan, and what of it has ended; closed when it is left.

    :param checkpoint: the directory.
    :ivar unread: paths that were named or found and cannot be read, and why.
    :raises InputError: it cannot be read or written.
    """

    def __init__(self, checkpoint: str) -> None:
        self._folder = Path(checkpoint)
        self.unread: tuple[tuple[str, str], ...] = ()
        try:
            # Without a buffer: what a full disk did not take must not be tried again when it is closed.
            self._ended = open(self._folder / ENDED_FILE, "ab+", buffering=0)  # noqa: PTH123, SIM115  # open until `close`
        except OSError as error:
            raise self._not_written(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.close()

    def read(self) -> list[Portion] | None:
        """The portions that were planned; None if the job is new.

        :raises InputError: they cannot be read.
        """
        file = self._folder / PLAN_FILE
        try:
            if not file.exists():
                return None
            planned = read_checked(file)
            if isinstance(planned, list):  # of an earlier version
                planned = {"portions": planned, "unread": []}
            self.unread = tuple((str(path), str(reason)) for path, reason in planned["unread"])
            return [_portion(item) for item in planned["portions"]]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InputError(f"the plan of the checkpoint cannot be read: {file}: {error!r}") from error

    def write(self, portions: Sequence[Portion], unread: Sequence[tuple[str, str]] = ()) -> None:
        """Remember the portions, also if the machine dies.

        :param unread: paths that no portion has, and why.
        :raises InputError: they cannot be written.
        """
        self.unread = tuple(unread)
        planned = {"portions": [_item(portion) for portion in portions], "unread": self.unread}
        write_checked(self._folder / PLAN_FILE, planned)

    def ended(self) -> set[int]:
        """The numbers of the portions all of which is acknowledged."""
        self._ended.seek(0)
        lines = self._ended.read().split(b"\n")
        if lines[-1]:
            self._write(b"\n")  # half of a number: of a machine that died
        return {int(line) for line in lines if len(line) == _DIGITS}

    def end(self, numbers: Iterable[int]) -> None:
        """These portions have ended. What of this is lost with the machine is asked for again, and not stored again.

        :raises InputError: it cannot be written.
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
