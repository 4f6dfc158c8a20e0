"""The plan: every byte of every file is in exactly one range, in partitions of the requested size."""

from hypothesis import given
from hypothesis import strategies as st

from producer.ship.files.log_file import LogFile
from producer.ship.files.plan import PARTITION_BYTES, Split, cut, pack, partition_size, plan

_FILES = st.lists(st.tuples(st.integers(0, 500), st.sampled_from([None, "gzip"])), max_size=12).map(
    lambda files: [LogFile(f"/logs/{index}", size, kind) for index, (size, kind) in enumerate(files)]
)


@given(files=_FILES, partition_bytes=st.integers(1, 200))
def test_every_byte_is_in_exactly_one_range(files: list[LogFile], partition_bytes: int) -> None:
    """For any files and size, the ranges of a file are adjacent, from its first byte to its last."""
    splits = [split for partition in plan(files, partition_bytes=partition_bytes) for split in partition]
    for file in files:
        bounds = [(split.start, split.end) for split in splits if split.file is file]
        assert [start for start, _ in bounds] == [0, *(end for _, end in bounds[:-1])][: len(bounds)]
        assert (bounds[-1][1] if bounds else 0) == file.size


@given(files=_FILES, partition_bytes=st.integers(1, 200))
def test_no_partition_is_empty_or_too_large_except_for_a_compressed_file_alone_in_it(
    files: list[LogFile], partition_bytes: int
) -> None:
    """No partition is empty or too large, except for a compressed file alone in it."""
    for partition in plan(files, partition_bytes=partition_bytes):
        size = sum(split.size for split in partition)
        assert size > 0
        assert size <= partition_bytes or (len(partition) == 1 and partition[0].file.compression)


def test_very_many_files_do_not_share_one_partition() -> None:
    """Very many small files are divided by number, as each takes a request."""
    files = [LogFile(f"/logs/{index}", 1, None) for index in range(2_500)]
    assert [len(part) for part in plan(files)] == [1000, 1000, 500]


def test_small_files_share_a_partition() -> None:
    """Ten thousand small files share partitions."""
    files = [LogFile(f"/logs/{index}", 100, None) for index in range(10_000)]
    assert len(plan(files, partition_bytes=100_000)) == 10


def test_planning_takes_linear_time_for_eighty_thousand_small_files() -> None:
    """Planning takes linear time for eighty thousand small files."""
    count = 80_000
    looks = 0

    class Watched(Split):
        @property
        def size(self) -> int:
            nonlocal looks
            looks += 1
            assert looks <= 3 * count
            return self.end - self.start

    ranges = [Watched(LogFile("/logs/a", 1, None), 0, 1) for _ in range(count)]
    assert [len(partition) for partition in pack(ranges)] == [1000] * (count // 1000)


def test_a_compressed_file_is_one_range_as_it_can_only_be_read_from_its_start() -> None:
    """A compressed file is one range, as it can only be read from its start."""
    ((split,),) = plan([LogFile("/logs/a.gz", 1000, "gzip")], partition_bytes=10)
    assert (split.start, split.end) == (0, 1000)


def test_only_the_first_range_begins_a_line_by_decree() -> None:
    """Only the first range begins a line regardless of the byte before; at other cuts the bytes decide."""
    splits = cut(LogFile("/logs/a.log", 100, None), 40, 100, partition_bytes=25)
    assert [(split.start, split.begins_line) for split in splits] == [(40, True), (65, False), (90, False)]


def test_small_job_is_divided_among_the_cores() -> None:
    """A job smaller than a partition gives each core two tasks, but no task of only a few lines."""
    assert partition_size(8 << 20, parallelism=4) == 1 << 20
    assert partition_size(1000, parallelism=4) == 256 << 10
    assert partition_size(1 << 40, parallelism=4) == PARTITION_BYTES
    assert partition_size(1 << 40, parallelism=4, most=100) == 100
