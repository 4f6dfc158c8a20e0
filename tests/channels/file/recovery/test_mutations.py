"""Mutations: each broken promise of the file channel is detected by a state machine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from producer.channels.file.log.log import Log
from producer.channels.file.options import FileChannelOptions
from producer.channels.file.recovery.checkpointer import Checkpointer
from producer.channels.file.store import segment
from producer.channels.file.store.format import FRAME_SIZE
from producer.model.interfaces import Stored
from tests.channels.file.machine import ChannelMachine, OsMachine
from tests.support.histories import random_history
from tests.support.sim_fs import SimFS

pytestmark = pytest.mark.usefixtures("read_back")

#: Histories, enough for every mutation with any salts; a run ends at the first failure.
_HISTORIES = 2000


class _NoDirectorySync(SimFS):
    def sync_directory(self, path: str) -> None:
        """Do nothing."""


class _UnsyncedCheckpoints(SimFS):
    def sync(self, file: int) -> None:
        if not self._path(file).endswith(".new"):
            super().sync(file)


class _HastyDeletions(SimFS):
    def sync_directory(self, path: str) -> None:
        """Sync removals, but no renames, which reach the disk at any later time."""
        tree = self._medium.tree
        renames = [change for change in tree._unsynced if change.source is not None]
        tree._unsynced = [change for change in tree._unsynced if change.source is None]
        super().sync_directory(path)
        tree._unsynced += renames


class _SyncsAgain(SimFS):
    def sync(self, file: int) -> None:
        """Retry a failed sync, and report success."""
        try:
            super().sync(file)
        except OSError:
            super().sync(file)


class _Equal:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def _commit_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FileChannelOptions, "waits", property(lambda _options: False))
    patch.setattr(FileChannelOptions, "promise", property(lambda _options: Stored.DISK))


def _take_without_writing(patch: pytest.MonkeyPatch) -> None:
    commit = Log.commit

    def forgetful(log: Log, run: Any) -> None:
        if run.takes:
            with log._state:
                log._publish(run)
        else:
            commit(log, run)

    patch.setattr(Log, "commit", forgetful)


def _append_to_abandoned(patch: pytest.MonkeyPatch) -> None:
    def shrug(log: Log, error: OSError | None) -> bool:
        for writer in log._end.unsynced:
            writer.synced = writer.size
        return True

    patch.setattr(Log, "_replace_segments", shrug)


def _look_only(checkpointer: Checkpointer) -> Any:
    return checkpointer._snapshot(checkpointer._journal.mark())


def _disk(kind: type[SimFS]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(ChannelMachine, "disk_type", kind)


def _without_checksums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(segment, "checksum", lambda *_: _Equal())
    patch.setattr(segment, "put_at", lambda data, _view, at, size, *_: data[at + FRAME_SIZE : at + FRAME_SIZE + size])


@dataclass(frozen=True, slots=True)
class Mutation:
    what: str
    machine: type[ChannelMachine]
    apply: Callable[[pytest.MonkeyPatch], None]


MUTATIONS = (
    Mutation("directories are never synced", ChannelMachine, _disk(_NoDirectorySync)),
    Mutation("a commit returns before the sync", ChannelMachine, _commit_without_waiting),
    Mutation("a checkpoint is renamed before it is synced", ChannelMachine, _disk(_UnsyncedCheckpoints)),
    Mutation("segments are deleted before the checkpoint is on the disk", ChannelMachine, _disk(_HastyDeletions)),
    Mutation("a failed sync is tried again on the same file", ChannelMachine, _disk(_SyncsAgain)),
    Mutation("checksums are not checked", OsMachine, _without_checksums),
    Mutation("the commit of takes is not written", ChannelMachine, _take_without_writing),
    Mutation(
        "no Live is written before segments are deleted",
        OsMachine,
        lambda patch: patch.setattr(Checkpointer, "_write_live", lambda *_: None),
    ),
    Mutation("an abandoned segment is appended to", ChannelMachine, _append_to_abandoned),
    Mutation(
        "a checkpoint is not synced for", OsMachine, lambda patch: patch.setattr(Checkpointer, "_look", _look_only)
    ),
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.what)
def test_a_state_machine_finds_a_history_that_contradicts_the_model(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state machine finds a history that contradicts the model."""
    mutation.apply(monkeypatch)
    errors = (random_history(mutation.machine, seed, 40)[1] for seed in range(_HISTORIES))
    assert any(isinstance(error, AssertionError) for error in errors)
