"""The simulated file system does what the real one does, and loses what a real one may lose.

The file is long because every call of the disk has its promises.
"""

import errno
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.channels.file.store.disk import Disk
from tests.support.sim_file import SECTOR
from tests.support.sim_fs import PLENTY, SimFS
from tests.support.waiting import Call, eventually

SEEDS = range(200)


def disk_with(*files: str, root: str = "/d") -> SimFS:
    """Build a disk with a directory and some files, all synced, each with its own name as content."""
    disk = SimFS()
    disk.make_directory(root)
    for name in files:
        disk.put(f"{root}/{name}", name.encode())
    return disk


def outcomes(build: Callable[[], SimFS], look: Callable[[SimFS], Any]) -> set[Any]:
    """Return all states that may be found after a power failure."""
    return {look(build().crash(seed)) for seed in SEEDS}


def written(*pieces: bytes) -> Callable[[], SimFS]:
    """Build a disk with one file whose name is synced and whose bytes are not."""

    def build() -> SimFS:
        disk = disk_with()
        file = disk.create("/d/a")
        disk.sync_directory("/d")
        for piece in pieces:
            disk.append(file, piece)
        return disk

    return build


def test_it_has_the_methods_of_the_real_disk() -> None:
    """Every method of Disk is there, with the same parameters."""
    for name, method in inspect.getmembers(Disk, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(method).parameters == inspect.signature(getattr(SimFS, name)).parameters, name


def everything(disk: Any, root: str) -> list[object]:
    """Call each operation once; return each result or error number."""
    seen: list[object] = []

    def note(function: Callable[..., object], *arguments: object) -> Any:
        try:
            value = function(*arguments)
        except OSError as failure:
            seen.append(failure.errno)
            return None
        seen.append(None if isinstance(value, int) and value > 2000 else value)
        return value

    place = f"{root}/deep/er"
    note(disk.make_directory, place)
    note(disk.make_directory, place)
    note(disk.names, f"{root}/deep")
    note(disk.is_directory, place)
    note(disk.exists, f"{place}/a")
    note(disk.names, f"{root}/nowhere")
    note(disk.open, f"{place}/a")
    note(disk.load, f"{place}/a", 10)
    note(disk.unlink, f"{place}/a")
    note(disk.rename, f"{place}/a", f"{place}/b")
    note(disk.create, f"{root}/nowhere/a")
    file = disk.create(f"{place}/a")
    note(disk.create, f"{place}/a")
    note(disk.append, file, b"one")
    note(disk.append, file, b"-two" * 300)
    note(disk.append, file, b"")
    note(disk.read, file, 5, 1)
    note(disk.read, file, 5000, 1200)
    note(disk.read, file, 5, 5000)
    note(disk.truncate, file, 1000)
    note(disk.size, file)
    note(disk.append, file, b"end")
    note(disk.truncate, file, 1010)
    note(disk.read, file, 50, 990)
    note(disk.sync, file)
    note(disk.close, file)
    note(disk.close, file)
    note(disk.read, file, 1, 1)
    again = disk.open(f"{place}/a")
    note(disk.size, again)
    note(disk.overwrite, again, b"over", 995)
    note(disk.read, again, 50, 990)
    disk.close(again)
    note(disk.sync_directory, place)
    note(disk.sync_directory, f"{root}/nowhere")
    new = disk.create(f"{place}/new")
    note(disk.allocate, new, 700)
    note(disk.allocate, new, 600)
    note(disk.size, new)
    disk.close(new)
    note(disk.rename, f"{place}/new", f"{place}/a")
    note(disk.names, place)
    note(disk.load, f"{place}/a", 3)
    note(disk.size_of, f"{place}/a")
    note(disk.size_of, f"{place}/nothing")
    lock = disk.lock(f"{place}/LOCK")
    note(disk.lock, f"{place}/LOCK")
    note(disk.rewrite, lock, b"a longer text")
    note(disk.rewrite, lock, b"short")
    note(disk.load, f"{place}/LOCK", 100)
    disk.close(lock)
    disk.close(disk.lock(f"{place}/LOCK"))
    note(disk.unlink, f"{place}/LOCK")
    note(disk.exists, f"{place}/LOCK")
    note(disk.is_directory, f"{place}/a")
    return seen


def test_the_same_calls_return_the_same_and_fail_with_the_same_errors_on_both(tmp_path: Path) -> None:
    """The same calls return the same and fail with the same errors on both."""
    assert everything(SimFS(), "") == everything(Disk(), str(tmp_path))


def test_a_process_sees_its_own_writes() -> None:
    """A process sees its own writes; after a kill the next process sees them too, and the dead one writes no more."""
    disk = written(b"abc")()
    file = disk.open("/d/a")
    assert disk.content("/d/a") == b"abc"
    after = disk.kill()
    with pytest.raises(OSError, match="Input/output"):
        disk.append(file, b"late")
    assert after.content("/d/a") == b"abc"


def after(*steps: tuple[Any, ...]) -> Callable[[], SimFS]:
    """Build a disk on which these calls were made, each with a path or the open file of that path."""

    def build() -> SimFS:
        disk = disk_with()
        for operation, path, *rest in steps:
            by_file = operation in ("append", "sync", "truncate")
            getattr(disk, operation)(disk.open(path) if by_file else path, *rest)
        return disk

    return build


def content(disk: SimFS) -> bytes:
    return disk.content("/d/a").rstrip(b"\0")


def entries(disk: SimFS) -> tuple[str, ...]:
    return (*disk.names("/d"), *(disk.names("/e") if disk.is_directory("/e") else ()))


NAMED = (("create", "/d/a"), ("sync_directory", "/d"))
KEPT = ("sync_directory", "/d")
ABC = (("create", "/d/a"), ("append", "/d/a", b"abc"), ("sync", "/d/a"))
LONG = (*NAMED, ("append", "/d/a", b"x" * 3 * SECTOR), ("sync", "/d/a"))
PAIR = (("put", "/d/a", b"a"), ("put", "/d/b", b"b"))
NEW = (("put", "/d/a", b"old"), ("create", "/d/t"), ("append", "/d/t", b"new"), ("sync", "/d/t"))
RENAMED = (*NEW, ("rename", "/d/t", "/d/a"))
MOVED = (("make_directory", "/e"), *NAMED, ("rename", "/d/a", "/e/b"))


@pytest.mark.parametrize(
    ("steps", "look", "expected"),
    [
        # Synced bytes survive; of an unsynced sector an earlier write may be found, never the second alone.
        ((*NAMED, ("append", "/d/a", b"abc" * 400), ("sync", "/d/a")), content, {b"abc" * 400}),
        ((*NAMED, ("append", "/d/a", b"one"), ("append", "/d/a", b"two")), content, {b"", b"one", b"onetwo"}),
        ((*ABC, KEPT, ("append", "/d/a", b"-risk")), content, {b"abc", b"abc-risk"}),
        # The cut bytes may come back; after a sync they cannot.
        ((("put", "/d/a", b"x" * 100), ("truncate", "/d/a", 5)), content, {b"x" * 5, b"x" * 100}),
        ((*LONG, ("truncate", "/d/a", 5), ("sync", "/d/a")), content, {b"x" * 5}),
        (
            (*LONG, ("truncate", "/d/a", 2 * SECTOR), ("truncate", "/d/a", SECTOR)),
            lambda disk: len(content(disk)),
            {SECTOR, 2 * SECTOR, 3 * SECTOR},
        ),
        # Synced bytes do not save a file whose creation is lost; a sync of the directory does, and no other one's.
        (ABC, entries, {(), ("a",)}),
        ((*ABC, KEPT), content, {b"abc"}),
        ((("make_directory", "/e"), *NAMED, ("create", "/e/a")), entries, {("a",), ("a", "a")}),
        # A new name has the old file or the new one, and no file has two names.
        (
            (*PAIR, ("rename", "/d/b", "/d/a")),
            lambda disk: (*disk.names("/d"), disk.content("/d/a")),
            {("a", "b", b"a"), ("a", b"b")},
        ),
        (
            RENAMED,
            lambda disk: (*disk.names("/d"), disk.content("/d/a")),
            {("a", b"old"), ("a", "t", b"old"), ("a", b"new")},
        ),
        # It is in one of two directories; a sync of either decides which.
        (MOVED, entries, {("a",), ("b",)}),
        ((*MOVED, KEPT), entries, {("b",)}),
        ((*MOVED, ("sync_directory", "/e")), entries, {("b",)}),
        # A removed file may be back; each change of a directory has its own fate.
        ((*PAIR, ("unlink", "/d/a"), ("unlink", "/d/b")), entries, {(), ("a",), ("b",), ("a", "b")}),
        ((*PAIR, ("unlink", "/d/a"), ("unlink", "/d/b"), KEPT), entries, {()}),
        # A directory that was made is there after any crash.
        ((("make_directory", "/x/y/z"),), lambda disk: disk.is_directory("/x/y/z"), {True}),
    ],
)
def test_after_a_power_failure_exactly_these_states_may_be_found(
    steps: tuple[tuple[Any, ...], ...], look: Callable[[SimFS], Any], expected: set[Any]
) -> None:
    """After a power failure exactly these states may be found."""
    assert outcomes(after(*steps), look) == expected


def test_unsynced_sectors_are_kept_in_any_combination() -> None:
    """Each sector reaches the disk or not; lost ones inside read as zeros, lost ones at the end are missing."""
    a, b, c = (bytes([letter]) * SECTOR for letter in b"abc")
    none = bytes(SECTOR)
    found = outcomes(written(a + b + c), lambda disk: disk.content("/d/a"))
    assert {b"", a, a + b, a + b + c, a + none + c, none + b, none + b + c, none + none + c} <= found


def test_a_lost_end_may_also_read_as_zeros() -> None:
    """A lost end may also read as zeros."""
    found = outcomes(written(b"a" * SECTOR + b"b" * 10), lambda disk: disk.content("/d/a"))
    assert b"a" * SECTOR + bytes(10) in found


def test_a_crash_is_repeatable() -> None:
    """The same seed leaves the same disk; the fates differ between seeds."""
    disks = [written(b"a" * 5000, b"b" * 300)().crash(7).content("/d/a") for _ in range(3)]
    assert len(set(disks)) == 1
    assert len(outcomes(written(b"a" * 5000), lambda disk: disk.content("/d/a"))) > 10


def test_a_crash_closes_files_and_opens_locks() -> None:
    """After a crash nothing is open or locked, and an owner from before it can do nothing."""
    disk = disk_with("a")
    file, _lock = disk.open("/d/a"), disk.lock("/d/LOCK")
    for after in (disk.kill(), disk.crash(1)):
        assert after.open_files == []
        assert after.lock("/d/LOCK")
        with pytest.raises(OSError, match="descriptor"):
            after.append(file, b"late")
    for late in (lambda: disk.append(file, b"late"), lambda: disk.create("/d/late"), lambda: disk.unlink("/d/a")):
        with pytest.raises(OSError, match="Input/output"):
            late()
    assert disk.dead


def test_the_same_owner_cannot_lock_twice() -> None:
    """A second lock is refused until the first is closed."""
    disk = disk_with()
    first = disk.lock("/d/LOCK")
    with pytest.raises(BlockingIOError):
        disk.lock("/d/LOCK")
    disk.close(first)
    disk.lock("/d/LOCK")


@pytest.mark.parametrize("operation", ["create", "append", "rename", "unlink", "truncate", "names", "read", "load"])
def test_the_nth_call_fails(operation: str) -> None:
    """The nth call of the operation fails once, with the error and without an effect; those around it do not."""
    disk = disk_with(*"abcdefgh")
    file = disk.open("/d/a")
    calls: dict[str, Callable[[str], object]] = {
        "create": lambda name: disk.create(f"/d/new-{name}"),
        "append": lambda name: disk.append(file, name.encode()),
        "rename": lambda name: disk.rename(f"/d/{name}", f"/d/{name}2"),
        "unlink": lambda name: disk.unlink(f"/d/{name}"),
        "truncate": lambda name: disk.truncate(file, ord(name)),
        "names": lambda _name: disk.names("/d"),
        "read": lambda _name: disk.read(file, 1, 0),
        "load": lambda name: disk.load(f"/d/{name}", 1),
    }
    fault = disk.fail(operation, 2, errno.ENOSPC)
    calls[operation]("b")
    before = (disk._medium.tree.root.entries["d"].entries.copy(), disk.content("/d/a"))  # type: ignore[union-attr]
    with pytest.raises(OSError, match="No space"):
        calls[operation]("c")
    assert before == (disk._medium.tree.root.entries["d"].entries, disk.content("/d/a"))  # type: ignore[union-attr]
    calls[operation]("d")
    assert fault.met == 1


def test_a_fault_may_last() -> None:
    """A fault without an end strikes until the disk is healed; one on every operation strikes any of them."""
    disk = disk_with("a")
    fault = disk.fail("*", 2, times=None)
    disk.names("/d")
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output"):
            disk.names("/d")
    with pytest.raises(OSError, match="Input/output"):
        disk.open("/d/a")
    disk.heal()
    disk.open("/d/a")
    assert fault.met == 4


def test_a_short_append_writes_some_bytes_and_says_how_many_one_that_fails_may_have_written_some_too() -> None:
    """A short append writes some bytes and says how many; one that fails may have written some too."""
    disk = disk_with("a")
    file = disk.open("/d/a")
    disk.fail("append", number=None, written=3)
    assert disk.append(file, b"bcdef") == 3
    disk.fail("append", written=1)
    with pytest.raises(OSError, match="Input/output"):
        disk.append(file, b"XYZ")
    assert disk.content("/d/a") == b"abcdX"


def test_a_failed_sync_is_never_made_good() -> None:
    """After a sync failed, the next one succeeds and saves nothing of what the first should have saved."""

    def build() -> SimFS:
        disk = written(b"a" * SECTOR)()
        file = disk.open("/d/a")
        disk.fail("sync")
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(file)
        disk.append(file, b"b" * SECTOR)
        disk.sync(file)
        assert disk.read(file, 2 * SECTOR, 0) == b"a" * SECTOR + b"b" * SECTOR
        return disk

    found = outcomes(build, lambda disk: disk.content("/d/a"))
    assert found == {bytes(SECTOR) + b"b" * SECTOR, b"a" * SECTOR + b"b" * SECTOR}


def test_a_failed_sync_of_a_directory_leaves_it_to_the_next() -> None:
    """Entries whose sync failed are still at risk, and saved by a sync that succeeds."""

    def build(*, again: bool) -> SimFS:
        disk = disk_with()
        disk.create("/d/a")
        disk.fail("sync_directory")
        with pytest.raises(OSError, match="Input/output"):
            disk.sync_directory("/d")
        if again:
            disk.sync_directory("/d")
        return disk

    assert outcomes(lambda: build(again=False), lambda disk: tuple(disk.names("/d"))) == {(), ("a",)}
    assert outcomes(lambda: build(again=True), lambda disk: tuple(disk.names("/d"))) == {("a",)}


def test_a_full_disk_refuses() -> None:
    """A write of what fits succeeds, then ENOSPC; removing a file that is not open frees its bytes."""
    disk = disk_with("a")
    file, other = disk.open("/d/a"), disk.create("/d/b")
    disk.capacity = 10
    assert disk.free("/d") == 9
    assert disk.append(other, b"x" * 6) == 6
    assert disk.append(file, b"y" * 6) == 3
    for refused in (
        lambda: disk.append(file, b"z"),
        lambda: disk.allocate(other, 7),
        lambda: disk.rewrite(file, b"12345"),
    ):
        with pytest.raises(OSError, match="No space"):
            refused()
    assert disk.free("/d") == 0  # the file that was to be rewritten is unchanged, too
    disk.unlink("/d/b")
    assert disk.free("/d") == 0
    disk.close(other)
    assert disk.free("/d") == 6
    disk.capacity = None
    assert disk.free("/d") == PLENTY


def test_it_dies_in_the_middle_of_an_operation() -> None:
    """The operation in which the power fails raises, may have happened, and is the last one."""

    def build() -> SimFS:
        disk = disk_with()
        disk.die_after(2)
        file = disk.create("/d/a")
        disk.sync_directory("/d")
        with pytest.raises(OSError, match="Input/output"):
            disk.append(file, b"abc")
        with pytest.raises(OSError, match="Input/output"):
            disk.read(file, 1, 0)
        disk.close(file)
        return disk

    assert outcomes(build, lambda disk: disk.content("/d/a").rstrip(b"\0")) == {b"", b"abc"}


def test_a_sync_in_which_it_dies_saves_nothing_for_certain() -> None:
    """A sync that did not return has promised nothing."""

    def build() -> SimFS:
        disk = written(b"abc")()
        disk.die_after(0)
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(disk.open("/d/a"))
        return disk

    assert outcomes(build, lambda disk: disk.content("/d/a").rstrip(b"\0")) == {b"", b"abc"}


def test_a_copy_has_the_visible_bytes_and_names_changes_of_one_do_not_touch_the_other() -> None:
    """A copy has the visible bytes and names; changes of one do not touch the other."""
    disk = written(b"abc")()
    copy = disk.copy()
    copy.append(copy.open("/d/a"), b"d")
    disk.create("/d/b")
    assert (disk.content("/d/a"), copy.content("/d/a"), copy.names("/d")) == (b"abc", b"abcd", ["a"])


def test_it_logs_calls_and_counts_syncs() -> None:
    """Every call is in the log with its path and outcome."""
    disk = disk_with("a")
    file = disk.open("/d/a")
    disk.append(file, b"xyz")
    disk.sync(file)
    disk.fail("sync")
    with pytest.raises(OSError, match="Input/output"):
        disk.sync(file)
    assert [(call.operation, call.path, call.size, call.failed) for call in disk.calls[-3:]] == [
        ("append", "/d/a", 3, False),
        ("sync", "/d/a", 0, False),
        ("sync", "/d/a", 0, True),
    ]
    assert (disk.count("sync"), disk.count("sync", "b"), disk.count("sync_directory")) == (2, 0, 1)


def test_a_hook_may_hold_a_call_back() -> None:
    """A hook that waits blocks its own call only; other calls continue."""
    disk = disk_with("a")
    entered: list[str] = []
    file = disk.open("/d/a")

    def hook(operation: str, _path: str) -> None:
        if operation == "sync":
            entered.append(operation)
            eventually(lambda: disk.content("/d/a") == b"ab", "the append")

    disk.hook = hook
    held = Call(lambda: disk.sync(file))
    eventually(lambda: entered, "the sync")
    disk.append(file, b"b")
    held.result()
