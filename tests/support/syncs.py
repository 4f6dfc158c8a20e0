"""Record syncs and renames in order: a crash at any instant must leave the old file or the new one."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def noted_syncs() -> Iterator[list[tuple[str, object]]]:
    """Record those of the block: ``("file", size)``, ``("directory", inode)`` or ``("rename", new name)``."""
    seen: list[tuple[str, object]] = []

    def synced(sync: Callable[[int], None]) -> Callable[[int], None]:
        def note(descriptor: int) -> None:
            sync(descriptor)
            status = os.fstat(descriptor)
            is_directory = stat.S_ISDIR(status.st_mode)
            seen.append(("directory", status.st_ino) if is_directory else ("file", status.st_size))

        return note

    def renamed(move: Callable[..., None]) -> Callable[..., None]:
        def note(path: Any, target: Any) -> None:
            move(path, target)
            seen.append(("rename", Path(target).name))

        return note

    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            if hasattr(os, name):
                patch.setattr(os, name, synced(getattr(os, name)))
        for name in ("replace", "rename"):  # the methods of Path call these
            patch.setattr(os, name, renamed(getattr(os, name)))
        yield seen
