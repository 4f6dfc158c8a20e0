"""Quarantine: files under names with their reason, complete, and never overwritten."""

import errno
from typing import cast

import pytest

from producer.channels.file.recovery.recovery import quarantine
from producer.channels.file.store.disk import Disk
from tests.support.sim_fs import SimFS

PATH = "/c/log-0000000007"


def a_disk(content: bytes = b"segment") -> SimFS:
    disk = SimFS()
    disk.make_directory("/c")
    disk.put(PATH, content)
    return disk


def test_each_reason_has_a_name_of_its_own_and_nothing_is_replaced() -> None:
    """A second file with the same name gets a number."""
    disk = a_disk()
    files = cast("Disk", disk)
    assert quarantine.copy(files, PATH) == "/c/quarantine/log-0000000007.copy"
    assert quarantine.copy(files, PATH) == "/c/quarantine/log-0000000007.copy.2"
    end = quarantine.copy(files, PATH, 4)
    assert (end, disk.content(end)) == ("/c/quarantine/log-0000000007.from-4", b"ent")
    assert quarantine.move(files, PATH, "unreadable") == "/c/quarantine/log-0000000007.unreadable"
    assert not disk.exists(PATH)
    assert quarantine.numbers(files, ["/c"]) == quarantine.numbers(files, ["/c"], "unreadable") == {7}
    assert quarantine.numbers(files, ["/c"], "unknown") == set()
    assert len(quarantine.files(files, ["/c", "/elsewhere"])) == 4


def test_an_equal_copy_is_kept_once() -> None:
    """An equal copy is kept once, and a changed file is copied again."""
    disk = a_disk()
    files = cast("Disk", disk)
    assert [quarantine.keep(files, PATH) for _ in range(2)] == [True, False]
    disk.put(PATH, b"longer than before")
    assert [quarantine.keep(files, PATH) for _ in range(2)] == [True, False]
    assert len(disk.names("/c/quarantine")) == 2


def test_without_room_a_file_gets_a_second_name_once() -> None:
    """Without space a file gets a second name, once, which outlives the first."""
    disk = a_disk()
    files = cast("Disk", disk)
    disk.make_directory("/c/quarantine")
    disk.capacity = disk.used
    assert [quarantine.keep(files, PATH) for _ in range(2)] == [True, False]
    disk.unlink(PATH)
    assert disk.content("/c/quarantine/log-0000000007.link") == b"segment"


def test_a_file_that_cannot_be_read_gets_a_second_name_once() -> None:
    """An unreadable file gets a second name; if that fails, the error of the copy is raised."""
    disk = a_disk()
    files = cast("Disk", disk)
    disk.fail("read", times=None)
    assert [quarantine.keep(files, PATH) for _ in range(3)] == [True, False, False]
    assert disk.names("/c/quarantine") == ["log-0000000007.link"]
    disk = a_disk()
    disk.fail("create", number=errno.EACCES)
    disk.fail("link", number=errno.EPERM)
    with pytest.raises(PermissionError, match="Permission denied"):
        quarantine.keep(cast("Disk", disk), PATH)
    assert disk.names("/c/quarantine") == []


@pytest.mark.parametrize("operation", ["create", "append", "sync", "read", "sync_directory"])
def test_a_quarantine_on_another_disk_gets_a_whole_copy_or_none(operation: str) -> None:
    """A move to another disk removes the file only after its copy is synced and equal."""
    for fails in (False, True):
        disk = a_disk()
        disk.make_directory("/c/quarantine")
        disk.fail("rename", number=errno.EXDEV)
        if fails:
            disk.fail(operation)
            with pytest.raises(OSError, match=r"\[Errno 5\]"):
                quarantine.move(cast("Disk", disk), PATH, "unknown")
            assert disk.content(PATH) == b"segment"
            assert disk.names("/c/quarantine") == []
        else:
            assert disk.content(quarantine.move(cast("Disk", disk), PATH, "unknown")) == b"segment"
            assert not disk.exists(PATH)
        assert disk.open_files == []
