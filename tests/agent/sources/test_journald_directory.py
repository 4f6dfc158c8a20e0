"""The source ``journald`` with the real ``journalctl``, on journals of other machines in a directory."""

import os
import subprocess
from pathlib import Path

import pytest

from producer.agent.config.options import AgentConfigError
from producer.agent.sources.journald import JournalError
from tests.agent.components import made
from tests.agent.doubles import file_channel, opened, taken
from tests.agent.sources.putting import reading
from tests.programs import need
from tests.support.waiting import eventually

_WRITER = "/lib/systemd/systemd-journal-remote"
_MACHINE, _OTHER = "1" * 32, "2" * 32


@pytest.fixture(autouse=True)
def _programs() -> None:
    need("journalctl")
    need(_WRITER)


def write(file: Path, *numbers: int, boot: str = "a", machine: str = _MACHINE) -> None:
    """Write entries into a journal; their numbers are their messages and their seconds."""
    entries = "".join(
        f"__REALTIME_TIMESTAMP={(1_700_000_000 + number) * 1_000_000}\n__MONOTONIC_TIMESTAMP={number}\n"
        f"_BOOT_ID={boot * 32}\n_MACHINE_ID={machine}\nMESSAGE={number}\n\n"
        for number in numbers
    )
    export(file, entries.encode())


def export(file: Path, entries: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([_WRITER, f"--output={file}", "-"], input=entries, check=True, capture_output=True)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "host/var/log/journal"


def _read(folder: Path, count: int, **options: str) -> list[bytes]:
    """Run the source with the same state until a number of events are there; return those."""
    with opened(file_channel(folder)) as channel:
        with reading("journald", folder, {"c": channel}, **options) as call:
            eventually(lambda: channel.held >= count or call.done, f"{count} events")
            assert call.error is None
        return taken(channel)


def _bodies(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_entries_of_all_machines_and_boots_are_read_once_also_through_rotation_and_a_reboot(
    tmp_path: Path, kept: Path
) -> None:
    """Entries of all machines and boots, in memory and on disk, are read once, also through rotation and a reboot."""
    in_memory = tmp_path / "host/run/log/journal"
    write(kept / _MACHINE / "old.journal", 1, 3, boot="a")
    write(kept / _MACHINE / "system.journal", 4, boot="b")
    write(kept / _OTHER / "system.journal", 2, boot="c", machine=_OTHER)
    write(in_memory / _MACHINE / "system.journal", 5, boot="b")
    root = str(tmp_path / "host")
    assert _read(tmp_path, 5, root=root) == _bodies(1, 2, 3, 4, 5)
    write(in_memory / _MACHINE / "system.journal", 6, boot="b")
    volatile = subprocess.run(
        ["journalctl", f"--directory={in_memory}", "--output=export", "--merge"], check=True, capture_output=True
    )
    export(kept / _MACHINE / "system.journal", volatile.stdout)  # as journald flushes its memory
    (in_memory / _MACHINE / "system.journal").unlink()
    (kept / _MACHINE / "system.journal").rename(kept / _MACHINE / "system@1.journal")
    write(kept / _MACHINE / "system.journal", 7, boot="d")
    assert _read(tmp_path, 2, root=root) == _bodies(6, 7)


def test_if_the_entry_that_was_read_last_is_deleted_the_next_one_is_still_read(tmp_path: Path, kept: Path) -> None:
    """If the entry that was read last is deleted, as for lack of space, the next one is still read."""
    write(kept / "a.journal", 1, 2)
    assert _read(tmp_path, 2, directory=str(kept)) == _bodies(1, 2)
    write(kept / "b.journal", 3, 4)
    (kept / "a.journal").unlink()
    assert _read(tmp_path, 2, directory=str(kept)) == _bodies(3, 4)


def test_a_directory_that_does_not_exist_is_an_error_an_empty_one_is_logged_and_its_first_entries_are_read(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory that does not exist is an error, an empty one is logged, and its first entries are read."""
    with opened(file_channel(tmp_path)) as channel:
        options = {"root": str(tmp_path / "host"), "start": "end"}
        with (
            reading("journald", tmp_path, {"c": channel}, **options) as call,
            pytest.raises(JournalError, match="there is no directory /"),
        ):
            call.result()
        kept.mkdir(parents=True)
        with reading("journald", tmp_path, {"c": channel}, **options) as call:
            eventually(lambda: "it waits for the first" in caplog.text or call.done, "a line of the log")
            write(kept / _MACHINE / "system.journal", 1)
            eventually(lambda: channel.held == 1 or call.done, "an event")
            (tmp_path / "host/run/log/journal").mkdir(parents=True)
            with pytest.raises(JournalError, match="a directory of journals is new"):  # the agent runs it again
                call.result()
        write(tmp_path / "host/run/log/journal" / _MACHINE / "system.journal", 2)
        with reading("journald", tmp_path, {"c": channel}, **options) as call:
            eventually(lambda: channel.held == 2 or call.done, "the second event")
        assert taken(channel) == _bodies(1, 2)


def test_journals_that_the_agent_may_not_read_are_logged_with_the_group_that_may(
    tmp_path: Path, kept: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Journals that the agent may not read, which journalctl passes over, are logged with the group that may."""
    write(kept / _MACHINE / "system.journal", 1)
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    _read(tmp_path, 1, directory=str(kept))
    assert f"no permission to read 1 of 1 journals in {kept}: add the agent's user to the group" in caplog.text


def test_directory_and_root_exclude_each_other(tmp_path: Path) -> None:
    """``directory`` and ``root`` exclude each other, as for journalctl."""
    with pytest.raises(AgentConfigError, match="must not be given together with directory"):
        made("sources", "journald", tmp_path, directory="a", root="b")
