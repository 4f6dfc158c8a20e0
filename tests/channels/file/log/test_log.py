"""Log: segments in sequence, the records of a transaction, and free space; Flume's TestLog."""

import errno
from typing import cast

import pytest

from producer.channels import Event
from producer.channels.file.recovery.repair import repair
from producer.channels.file.store.disk import Disk
from producer.channels.file.store.format import COMMIT_SIZE, FIRST_RECORD, FRAME_SIZE, Kind
from producer.channels.file.store.space import FRESH, Space
from producer.model.errors import ChannelFormatError, ChannelIOError, DiskFullError, InvalidArgumentError
from producer.testing import ManualClock
from tests.channels.file.opening import (
    CHECKPOINTS,
    DIRECTORY,
    SEGMENT,
    contents,
    file_stats,
    fill,
    header,
    killed,
    log,
    names,
    open_channel,
    opened_channel,
    segments,
)
from tests.channels.helpers import bodies, drained, events, opened, put, take
from tests.support.sim_fs import SimFS


def kinds(disk: SimFS) -> list[str]:
    return [Kind(record.kind).name for record in log(disk)]


def test_a_new_segment_is_begun_when_the_next_transaction_would_not_fit() -> None:
    """No segment exceeds the limit: the next transaction begins a new one."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        expected = fill(channel, 1000)
        one = (FRAME_SIZE + 4 + 100) + (FRAME_SIZE + COMMIT_SIZE)
        assumed = one + 2 * 28  # the estimate includes a cipher's overhead for both records
        fitting = (SEGMENT - FIRST_RECORD - assumed) // one + 1
        assert len(segments(disk)) == -(-1000 // fitting) > 50
        assert file_stats(channel).rolls == len(segments(disk)) - 1
        assert max(len(disk.content(path)) for path in segments(disk)) <= SEGMENT
        assert drained(channel) == expected


def test_a_transaction_never_spans_segments() -> None:
    """A transaction larger than a segment gets a longer segment of its own."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "small")
        put(channel, *("x" * 1000 for _ in range(10)))
        put(channel, "after")
        sizes = [len(disk.content(path)) for path in segments(disk)]
        assert len(sizes) == 3
        assert sizes[1] > 10_000
        for path in segments(disk):
            assert header(disk, path).number == int(path[-10:])
        transactions = [{record.transaction for record in log(disk)}]
        assert transactions == [{1, 2, 3}]
        assert [len(body) for body in drained(channel)] == [5] + [1000] * 10 + [5]


def test_a_transaction_that_no_segment_can_hold_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction beyond 32-bit offsets is refused, and later ones are committed."""
    monkeypatch.setattr("producer.channels.file.log.appender.MOST_OFFSET", 10_000)
    disk = SimFS()
    with opened_channel(disk, byte_capacity=1 << 20) as channel:
        put(channel, "before")
        transaction = opened(channel)
        transaction.put_many(events(["x" * 3000] * 4))
        with pytest.raises(
            InvalidArgumentError,
            match=r"a transaction of 12\d+ bytes is too large .* at most \d+ bytes: put less in one",
        ):
            transaction.commit()
        transaction.rollback()
        assert kinds(disk) == ["PUT", "COMMIT"]
        assert channel.stats().bytes == 4 + len("before")
        put(channel, *["x" * 3000] * 3)
        assert len(drained(channel)) == 4


def test_a_committed_put_is_puts_and_a_commit_in_one_write() -> None:
    """A committed put is one write: its Puts, then a Commit."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        transaction = opened(channel)
        appends = disk.count("append", "log-")
        transaction.put_many(events("abc"))
        assert disk.count("append", "log-") == appends
        assert kinds(disk) == []
        transaction.commit()
        assert disk.count("append", "log-") == appends + 1
        assert kinds(disk) == ["PUT", "PUT", "PUT", "COMMIT"]
        assert [record.remaining for record in log(disk)] == [3, 2, 1, 0]


def test_a_committed_take_is_a_take_and_a_commit() -> None:
    """A committed take is one Take and one Commit, for any number of events."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, *"abc")
        take(channel, 3)
        assert kinds(disk)[4:] == ["TAKE", "COMMIT"]


@pytest.mark.parametrize("what", ["put", "take", "nothing"])
@pytest.mark.parametrize("end", ["rollback", "commit"])
def test_rollbacks_and_empty_transactions_write_no_record(what: str, end: str) -> None:
    """Rollbacks and empty transactions write no record."""
    disk = SimFS()
    channel = open_channel(disk)
    put(channel, "a")
    before = kinds(disk)
    transaction = opened(channel)
    if what == "put":
        transaction.put(Event({}, b"b"))
    elif what == "take":
        transaction.take()
    getattr(transaction, end)()
    assert (kinds(disk) == before) == (end == "rollback" or what == "nothing")
    expected = ["a"] if end == "rollback" or what == "nothing" else ["a", "b"] if what == "put" else []
    for path in CHECKPOINTS:
        disk.unlink(path)
    assert contents(killed(channel, disk)) == expected


def test_segments_lie_in_the_data_directories_in_turn() -> None:
    """Segments use the data directories in turn, with unique numbers, and are found and deleted there."""
    disk = SimFS()
    places = ("/one", "/two", "/three")
    channel = open_channel(disk, data_directories=places)
    expected = fill(channel, 150)
    assert [name for name in names(disk) if name.startswith("log-")] == []
    numbers = [[header(disk, path).number for path in segments(disk, place)] for place in places]
    assert all(len(found) >= 2 for found in numbers)
    flat = sorted(number for found in numbers for number in found)
    assert flat == list(range(1, len(flat) + 1))
    assert all(number % 3 == place for found in numbers for number in found for place in {found[0] % 3})
    assert all("LOCK" in names(disk, place) for place in (DIRECTORY, *places))
    disk = killed(channel, disk)
    with opened_channel(disk, data_directories=places) as again:
        assert drained(again) == expected
        again.checkpoint()
        assert sum(len(segments(disk, place)) for place in places) == 1


def test_segments_in_the_main_directory_are_found_after_data_directories_were_added() -> None:
    """Segments in the main directory are found after data directories were added."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "old")
    with opened_channel(disk, data_directories=["/data"]) as channel:
        put(channel, "new")
        assert len(segments(disk, "/data")) == 1
        assert drained(channel) == ["old", "new"]


def test_a_channel_opened_without_its_data_directories_is_refused() -> None:
    """A channel opened without its data directories is refused."""
    disk = SimFS()
    with opened_channel(disk, data_directories=["/one", "/two"]) as channel:
        expected = fill(channel, 60)
    for places in ([], ["/elsewhere"]):
        with pytest.raises(ChannelIOError, match="data_directories"):
            open_channel(disk, data_directories=places)
    assert contents(disk, data_directories=["/one", "/two"]) == expected


def test_a_data_directory_that_is_not_mounted_is_not_forgotten() -> None:
    """A channel with an unmounted data directory opens when it is back, or after it is abandoned explicitly."""
    disk = SimFS()
    places = ("/one", "/two")
    with opened_channel(disk, data_directories=places) as channel:
        expected = fill(channel, 60)
    kept = {path: disk.content(path) for path in segments(disk, "/two")}
    assert len(kept) >= 2
    for path in kept:
        disk.unlink(path)
    for _ in range(2):
        with pytest.raises(ChannelIOError, match=r"segments 1, 3.* if they are lost, producer channel repair"):
            open_channel(disk, data_directories=places)
    left = disk.copy()
    for path, content in kept.items():
        disk.put(path, content)
    assert contents(disk, data_directories=places) == expected
    done = repair(DIRECTORY, data_directories=places, give_up_missing=True, disk=cast("Disk", left))
    assert (done.given_up, done.failures) == ((1, 3), [])
    found = contents(left, data_directories=places)
    assert done.lost_events == 60 - len(found)
    assert 0 < len(found) < 60
    assert [body for body in expected if body in found] == found


def test_a_copy_of_a_segment_beside_it_is_refused() -> None:
    """Two files with the same segment number are refused."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a")
    disk.make_directory("/data")
    disk.put("/data/log-0000000001", disk.content(f"{DIRECTORY}/log-0000000001"))
    with pytest.raises(ChannelFormatError, match="two files are the same segment: /channel/log-0000000001, /data/log-"):
        open_channel(disk, data_directories=["/data"])
    assert contents(disk) == ["a"]


def a_space(disk: SimFS, clock: ManualClock, *, minimum: int = 1000, reserve: int = 0) -> Space:
    return Space(cast("Disk", disk), "orders", ["/one", "/two"], minimum=minimum, reserve=reserve, clock=clock)


def a_disk(capacity: int) -> SimFS:
    disk = SimFS(capacity)
    for place in ("/one", "/two"):
        disk.make_directory(place)
    return disk


def test_free_space_is_read_once_a_second_and_again_before_a_put_is_refused() -> None:
    """Free space is read once a second, and again before a put is refused."""
    disk, clock = a_disk(10_000), ManualClock()
    space = a_space(disk, clock)
    space.admit(9000)
    looks = disk.count("free")
    disk.put("/one/events", bytes(5000))
    space.used(5000)
    assert space.free == 5000
    space.admit(4000)
    assert disk.count("free") == looks
    with pytest.raises(DiskFullError):
        space.admit(4001)
    disk.unlink("/one/events")
    space.admit(9000)
    assert disk.count("free") > looks
    looks = disk.count("free")
    clock.advance(FRESH)
    space.admit(9000)
    assert disk.count("free") > looks


def test_the_error_of_a_full_disk_says_how_much_is_free_and_wanted() -> None:
    """DiskFullError gives bytes free and wanted, the directory, the advice and ENOSPC."""
    space = a_space(a_disk(5000), ManualClock())
    with pytest.raises(DiskFullError) as caught:
        space.admit(4500)
    error = caught.value
    assert (error.channel, error.free, error.wanted, error.errno) == ("orders", 5000, 5500, errno.ENOSPC)
    assert str(error) == (
        "channel orders: the disk of /one has 5000 bytes free, and a put needs 5500 (its own bytes plus "
        "minimum_free_space, or the size of a checkpoint): free some space, or let the channel drain"
    )


def test_the_reserve_occupies_the_disk_is_released_once_and_is_made_again_when_there_is_space() -> None:
    """The reserve occupies the disk, is released once, and is made again when there is space."""
    disk = a_disk(10_000)
    space = a_space(disk, ManualClock(), reserve=4000)
    space.keep_reserve()
    assert disk.used == 4000
    assert space.release_reserve()
    assert not space.release_reserve()
    assert disk.used == 0
    disk.capacity = 4999
    space.keep_reserve()
    assert disk.used == 0
    disk.capacity = 5000
    space.keep_reserve()
    assert disk.used == 4000


@pytest.mark.parametrize(("minimum", "told"), [(0, 1), (4000, 0)])
def test_a_disk_without_space_for_the_reserve_is_logged_once_if_puts_may_fill_it(
    minimum: int, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk without space for the reserve is logged once, if puts may fill it."""
    space = a_space(a_disk(3000), ManualClock(), minimum=minimum, reserve=4000)
    space.keep_reserve()
    space.keep_reserve()
    assert caplog.text.count("3000 bytes free, too few for a reserve of 4000 (reserve)") == told


@pytest.mark.parametrize("minimum", [3000, 1 << 30])
def test_with_too_little_free_space_puts_are_refused_while_takes_and_checkpoints_work(minimum: int) -> None:
    """With too little free space puts are refused, while takes and checkpoints work."""
    disk = SimFS()
    with opened_channel(disk) as channel:
        put(channel, "a", "b", "c")
    disk.capacity = disk.used + 2500
    channel = open_channel(disk, minimum_free_space=minimum)
    late = opened(channel)
    late.put(Event({}, b"d"))
    with pytest.raises(DiskFullError, match="free some space, or let the channel drain") as caught:
        late.commit()
    assert caught.value.wanted >= minimum
    assert take(channel) == ["a"]
    assert channel.checkpoint()
    taking = opened(channel)
    assert bodies(taking.take()) == ["b"]
    taking.rollback()
    disk.capacity = None
    late.commit()
    assert channel.stats().put_errors == 1
    assert contents(killed(channel, disk)) == ["b", "c", "d"]


@pytest.mark.parametrize("left", [0, 1, 3999])
def test_an_incomplete_reserve_file_is_replaced_and_a_complete_one_is_kept(left: int) -> None:
    """An incomplete reserve file is replaced, and a complete one is kept."""
    disk = a_disk(10_000)
    space = a_space(disk, ManualClock(), reserve=4000)
    disk.put("/one/reserve", bytes(left))
    space.keep_reserve()
    assert len(disk.content("/one/reserve")) == 4000
    made = disk.count("create", "reserve")
    space.keep_reserve()
    assert disk.count("create", "reserve") == made == 1


def test_on_a_full_disk_puts_are_refused_while_takes_checkpoints_and_deletions_use_the_reserve() -> None:
    """On a full disk puts are refused, while takes, checkpoints and deletions use the reserve."""
    disk = SimFS()
    channel = open_channel(disk, reserve=6000)
    expected = fill(channel, 100)
    before = len(segments(disk))
    assert before > 4
    disk.capacity = disk.used
    with pytest.raises(DiskFullError):
        put(channel, "no" * SEGMENT)  # larger than runs for which space is preallocated
    taken = []
    while got := take(channel, 10):
        taken += got
    assert taken == expected
    assert "reserve" not in names(disk)
    assert channel.checkpoint()
    assert len(segments(disk)) < before
    assert "reserve" in names(disk)
    put(channel, "yes")
    channel.close()
    assert contents(disk) == ["yes"]


def test_a_channel_opens_on_a_full_disk_to_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """A channel opens for reading on a full disk without a reserve."""
    disk = SimFS()
    channel = open_channel(disk, fsync="os", reserve=0)
    put(channel, "a")
    channel.close()
    disk.capacity = disk.used
    with opened_channel(disk, reserve=0) as again:
        assert "the disk is full: events can be read, but not put or acknowledged" in caplog.text
        with again.transaction() as transaction:
            assert bodies(transaction.take(10)) == ["a"]
            with pytest.raises(ChannelIOError, match="No space left"):
                transaction.commit()
            with pytest.raises(DiskFullError):
                put(again, "b")
            disk.capacity = None
            transaction.commit()
    assert contents(disk) == []


def test_a_put_on_a_disk_that_fills_up_is_undone_and_can_be_committed_later() -> None:
    """A put on a disk that fills up is undone, and can be committed later."""
    disk = SimFS()
    channel = open_channel(disk, fsync="os")  # nothing is preallocated
    put(channel, "a")
    late = opened(channel)
    late.put(Event({}, b"x" * 500))
    path = segments(disk)[-1]
    before = disk.content(path)
    disk.capacity = disk.used + 200
    channel._space._free = 10**6  # another program wrote after the last reading
    with pytest.raises(DiskFullError):
        late.commit()
    assert disk.content(path) == before
    disk.capacity = None
    late.commit()
    assert [len(body) for body in contents(killed(channel, disk))] == [1, 500]


def test_after_a_write_error_the_transaction_is_open_and_can_be_committed_once() -> None:
    """After a write error the transaction is open and can be committed, once."""
    disk = SimFS()
    channel = open_channel(disk)
    transaction = opened(channel)
    transaction.put(Event({}, b"a"))
    disk.fail("append")
    with pytest.raises(ChannelIOError, match=r"a commit failed: .*Input/output.*Nothing of it is stored") as caught:
        transaction.commit()
    assert caught.value.errno == errno.EIO
    transaction.commit()
    assert (channel.stats().put_errors, channel.stats().put_successes) == (1, 1)
    assert contents(killed(channel, disk)) == ["a"]


def test_a_segment_that_cannot_be_begun_leaves_no_trace() -> None:
    """A failure to begin a segment fails the commit, and the next commit begins it."""
    for operation, nth in (("create", 1), ("append", 1), ("sync_directory", 1)):
        disk = SimFS()
        channel = open_channel(disk)
        fill(channel, 17)
        before = segments(disk)
        fault = disk.fail(operation, nth)
        with pytest.raises(ChannelIOError):
            put(channel, "x" * 2000)
        assert fault.met == 1
        assert segments(disk) == before
        put(channel, "y" * 2000)
        assert len(segments(disk)) == len(before) + 1
        assert len(contents(killed(channel, disk))) == 18


def test_failed_commits_use_no_capacity() -> None:
    """Failed commits use no capacity."""
    disk = SimFS()
    with opened_channel(disk, capacity=3, byte_capacity=1000) as channel:
        for _ in range(10):
            disk.fail("append")
            with pytest.raises(ChannelIOError):
                put(channel, "a")
        assert (channel.stats().bytes, channel.stats().size) == (0, 0)
        put(channel, *"abc")
        assert drained(channel) == ["a", "b", "c"]
