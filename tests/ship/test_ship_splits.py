"""The work of one task in this process: the server holds the files byte for byte."""

import base64
import bz2
import gzip
import json
import lzma
import os
import re
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.frame
import pytest

from producer.server import LogHubServer
from producer.ship.errors import FileChangedError
from producer.ship.figures import Figures
from producer.ship.files.find import Search
from producer.ship.files.plan import Split, plan
from producer.ship.job import MAX_LINE_BYTES, ShipJob
from producer.ship.lines.line import Block
from producer.ship.lines.record import content_bytes
from producer.ship.lines.split_lines import read_split
from producer.wire.log_start import StartPattern
from producer.wire.zstd import zstd

from .conftest import contents, held, ship_splits

MakeJob = Callable[..., ShipJob]


def ship_path(path: Path, job: ShipJob, *, partition_bytes: int = 1 << 20) -> Figures:
    """Plan and ship one portion after the other, and check that each line was acknowledged."""
    figures = Figures()
    for partition in plan(Search([str(path)]).all().files, partition_bytes=partition_bytes):
        figures += ship_splits(partition, job)
    assert figures.records >= figures.lines
    return figures


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"one\r\ntwo\r\n", ["one", "two"], id="CR LF"),
        pytest.param(b"one\rtwo\n", ["one\rtwo"], id="a lone CR"),
        pytest.param(b"one\n\n\ntwo\n", ["one", "", "", "two"], id="empty lines"),
        pytest.param(b"one\ntwo", ["one", "two"], id="no end at the end"),
        pytest.param(b"", [], id="an empty file"),
        pytest.param(b"\xef\xbb\xbfone\n", ["one"], id="a byte order mark"),
        pytest.param(b"\0" * 5_000_000 + b"one\n\0\0\0\0two\n\0\0\0\0", ["one", "two"], id="holes"),
        pytest.param("日本 é\n".encode(), ["日本 é"], id="UTF-8"),
        pytest.param(b"nul \0 byte\n", ["nul \0 byte"], id="a NUL"),
        pytest.param(b"caf\xe9\n", ["caf\\xe9"], id="bytes that are not UTF-8"),
    ],
)
def test_lines_arrive_as_documented(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, data: bytes, expected: list[str]
) -> None:
    """Each reading rule holds from the file to the server."""
    file = tmp_path / "a.log"
    file.write_bytes(data)
    figures = ship_path(file, make_job(parser="text"))
    assert contents(server) == expected
    assert (figures.lines, figures.records) == (len(expected), len(expected))


@pytest.mark.parametrize("parser", ["json", "delimited", "syslog"])
@pytest.mark.parametrize("pattern", [None, r"[{a<]"])
def test_after_a_byte_order_mark_also_of_a_compressed_file_the_first_line_is_parsed_or_is_the_header(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, parser: str, pattern: str | None
) -> None:
    """After a byte order mark, also of a compressed file, the first line is parsed, or is the header."""
    lines = {"json": '{"a":1}', "delimited": "a\n1", "syslog": "<13>Oct 11 22:14:15 box a: 1"}[parser]
    file = tmp_path / "a.log.gz"
    file.write_bytes(gzip.compress(f"\ufeff{lines}\n".encode()))
    figures = ship_path(file, make_job(parser=parser, multiline_start=pattern if parser != "delimited" else None))
    (fields,) = held(server)
    assert fields.get("a", fields.get("program")) in {"1", "a"}
    assert figures.unparsed == 0


def test_a_hole_before_a_log_of_several_lines_is_skipped(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A hole before a multi-line log is skipped, even if it is longer than a range."""
    file = tmp_path / "a.log"
    file.write_bytes(b"\0" * 3_000_000 + b"1 a\n b\n2 c\n")
    figures = ship_path(file, make_job(parser="text", multiline_start=r"\d"), partition_bytes=1_000_000)
    assert sorted(contents(server)) == ["1 a\n b", "2 c"]
    assert figures.lines == 2


def test_line_of_a_megabyte_arrives_whole(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """A line of 1 MiB is one record, unchanged, as are its neighbours."""
    long = "x" * (1 << 20)
    file = tmp_path / "a.log"
    file.write_text(f"before\n{long}\nafter\n")
    ship_path(file, make_job(parser="auto"))
    assert contents(server) == ["before", long, "after"]


def test_line_over_the_limit_arrives_in_pieces(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """A line of 20 MB is sent in pieces that join to it, and counts as one long line."""
    long = b"0123456789" * 2_000_000
    file = tmp_path / "a.log"
    file.write_bytes(b"before\n" + long + b"\nafter\n")
    figures = ship_path(file, make_job(parser="auto"))
    before, *pieces, after = held(server)
    assert "".join(piece["content"] for piece in pieces).encode() == long
    assert [piece["line_part"] for piece in pieces] == [str(part) for part in range(1, len(pieces) + 1)]
    assert {piece["__file_offset__"] for piece in pieces} == {"7"}
    assert (before["content"], after["content"], after["__file_offset__"]) == ("before", "after", str(len(long) + 8))
    assert (figures.lines, figures.long_lines, figures.line_bytes) == (3, 1, len(long) + 11)


def test_longest_line_of_invalid_bytes_still_fits_a_batch(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """The largest line of invalid bytes, escaped and in base64, fits into a batch."""
    file = tmp_path / "a.log"
    file.write_bytes(b"\xff" * MAX_LINE_BYTES + b"\n")
    ship_path(file, make_job(parser="text"))
    (log,) = held(server)
    assert content_bytes(log) == b"\xff" * MAX_LINE_BYTES


def test_a_line_that_is_too_large_with_its_fields_is_sent_without_them_and_counted(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A line that is too large with its fields is sent without them, and counted."""
    file = tmp_path / "a.log"
    file.write_bytes(b"\xff" * MAX_LINE_BYTES + b"\n")
    figures = ship_path(file, make_job(parser="regex", pattern="(?P<all>.*)"))
    (log,) = held(server)
    assert "all" not in log
    assert figures.unparsed == 1


def test_a_line_that_does_not_parse_is_shipped_as_text_and_counted(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A line that does not parse is shipped as text and counted."""
    file = tmp_path / "a.log"
    file.write_text('{"level": "INFO"}\nTraceback:\n{"level": "WARN"}\n')
    figures = ship_path(file, make_job(parser="json"))
    assert [log.get("level") for log in held(server)] == ["INFO", None, "WARN"]
    assert (figures.lines, figures.unparsed) == (3, 1)


# Compressions, which ship recognizes by their magic bytes; the test writes several members one after the other.
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}),
    "lz4": lz4.frame.compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress(data)),
}


@pytest.mark.parametrize("compress", _COMPRESS.values(), ids=_COMPRESS)
def test_compressed_file_arrives_decompressed(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, compress: Callable[[bytes], bytes]
) -> None:
    """Two compressed members, as rotation by appending leaves them, are one file."""
    file = tmp_path / "a.log"
    file.write_bytes(compress(b"one\ntw") + compress(b"o\nthree\n"))
    ship_path(file, make_job())
    assert [(log["content"], log["__file_offset__"]) for log in held(server)] == [
        ("one", "0"),
        ("two", "4"),
        ("three", "8"),
    ]


def test_offsets_and_lines_do_not_depend_on_the_partitions(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """A file cut into ranges of a few bytes arrives as it does whole."""
    file = tmp_path / "a.log"
    lines = [f"line {number} {'é' * (number % 7)}" for number in range(60)]
    file.write_text("\n".join(lines))
    figures = ship_path(file, make_job(parser="text"), partition_bytes=97)
    assert contents(server) == lines
    data = file.read_bytes()
    assert all(data[int(log["__file_offset__"]) :].startswith(log["content"].encode()) for log in held(server))
    assert (figures.files, figures.file_bytes) == (1, len(data))


def test_bytes_appended_after_the_plan_are_left_to_the_next_job(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob
) -> None:
    """Bytes appended after the plan are left to the next job."""
    file = tmp_path / "a.log"
    file.write_text("one\ntwo")
    partitions = plan(Search([str(file)]).all().files)
    with file.open("a") as log:
        log.write(" and more\nthree\n")
    ship_splits(partitions[0], make_job(parser="text"))
    assert contents(server) == ["one", "two"]


@pytest.mark.parametrize("compress", _COMPRESS.values(), ids=_COMPRESS)
def test_compressed_file_that_was_cut_off_or_changed_fails(
    tmp_path: Path, make_job: MakeJob, compress: Callable[[bytes], bytes]
) -> None:
    """A truncated or altered compressed file is an error, in every format."""
    file = tmp_path / "a.z"
    data = compress(b"".join(b"line %d\n" % number for number in range(100_000)))
    changed = bytearray(data)
    changed[len(data) // 2 : len(data) // 2 + 8] = b"\x55" * 8
    for damaged in (data[:-20], bytes(changed)):
        file.write_bytes(damaged)
        with pytest.raises(FileChangedError, match=r"damaged or incomplete \w+ data .*leave it out with --exclude"):
            list(read_split(Split(Search([str(file)]).all().files[0], 0, len(damaged)), 1000))


def test_damaged_compressed_file_fails_and_says_how_far_it_could_be_read(tmp_path: Path, make_job: MakeJob) -> None:
    """A truncated gzip file is an error that names the last readable line."""
    file = tmp_path / "a.gz"
    data = b"".join(b"line %d\n" % number for number in range(10_000))
    file.write_bytes(gzip.compress(data)[:-20])
    told = r"a\.gz: damaged or incomplete gzip data .* line begins at byte (\d+)"
    with pytest.raises(FileChangedError, match=told) as raised:
        ship_path(file, make_job())
    found = re.search(told, str(raised.value))
    assert found is not None
    assert data[int(found[1]) :].startswith(b"line ")


def test_file_that_shrank_fails_with_both_sizes(tmp_path: Path, make_job: MakeJob) -> None:
    """A file truncated after the plan fails with both sizes."""
    file = tmp_path / "a.log"
    file.write_text("one\ntwo\n")
    partitions = plan(Search([str(file)]).all().files)
    file.write_text("one\n")
    with pytest.raises(FileChangedError, match="has 4 bytes, but had 8 when the job began"):
        ship_splits(partitions[0], make_job(parser="text"))


@pytest.mark.parametrize("log_start", [None, StartPattern("l")], ids=["lines", "logs"])
def test_file_that_is_truncated_while_it_is_read_fails_with_both_sizes(
    tmp_path: Path, log_start: StartPattern | None
) -> None:
    """A file truncated while it is read fails with both sizes; ranges read before lose nothing."""
    file = tmp_path / "a.log"
    file.write_bytes(b"line\n" * 1_000_000)
    (found,) = Search([str(file)]).all().files
    first, last = plan([found], partition_bytes=2_500_000)
    reads = [read_split(splits[0], 1000, log_start) for splits in (first, last)]
    begun = [next(each) for each in reads]
    os.truncate(file, 2_600_000)
    lines = [begun[0], *reads[0]]
    assert sum(block.count for block in lines if isinstance(block, Block)) == 500_000
    with pytest.raises(FileChangedError, match="has 2600000 bytes, but had 5000000 when the job began"):
        list(reads[1])


def test_file_that_is_gone_fails_with_its_name(tmp_path: Path, make_job: MakeJob) -> None:
    """A file deleted after the plan is an error with its name."""
    file = tmp_path / "a.log"
    file.write_text("one\n")
    partitions = plan(Search([str(file)]).all().files)
    file.unlink()
    with pytest.raises(FileChangedError, match=r"a\.log: cannot be read: it was deleted or replaced"):
        ship_splits(partitions[0], make_job(parser="text"))


def test_counts_tell_batches_and_attempts(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """Each batch, each attempt, and each retry beyond the first attempt counts."""
    from producer.server.faults import answer

    file = tmp_path / "a.log"
    file.write_text("".join(f"{json.dumps({'n': number})}\n" for number in range(1000)))
    server.faults.add(answer(503, "ServerBusy"), times=2)
    figures = ship_path(file, make_job(producer={"batch_count_threshold": 100}))
    puts = [request for request in server.requests if request.operation == "PutLogs"]
    assert figures.records == 1000
    assert (figures.attempts, figures.retries) == (len(puts), 2)
    assert figures.batches == len(puts) - 2


def test_file_of_utf16_without_a_mark_is_little_endian(tmp_path: Path, server: LogHubServer, make_job: MakeJob) -> None:
    """UTF-16 without a mark is little-endian, as in the agent's sources; an incomplete character ends nothing."""
    (tmp_path / "a.log").write_bytes("eins\n".encode("utf-16-le"))
    (tmp_path / "b.log").write_bytes(b"\xfe\xff" + "zwei\n".encode("utf-16-be"))
    (tmp_path / "c.log").write_bytes(b"x")
    [partition] = plan(Search([str(tmp_path)], encoding="utf-16").all().files, partition_bytes=1000)
    ship_splits(partition, make_job(parser="text"))
    assert contents(server) == ["eins", "zwei", r"\x78"]


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
@pytest.mark.parametrize(
    ("encoding", "data", "kept", "exact"),
    [
        ("gbk", "\u4e2d".encode("gbk") + b" \xff\xff x\nok\n", r"\u4e2d \xff\xff x", b"\xe4\xb8\xad \xff\xff x"),
        ("utf-16-le", b"c\0\x00\xd8x\0\n\0o\0k\0\n\0", r"c\x00\xd8x", rb"c\x00" + b"\xd8x"),
        ("utf-7", b"a+2AA- b\nok\n", r"a\ud800 b", None),
    ],
)
def test_bytes_that_are_not_text_in_the_encoding_are_kept(
    *,
    tmp_path: Path,
    server: LogHubServer,
    make_job: MakeJob,
    name: str,
    encoding: str,
    data: bytes,
    kept: str,
    exact: bytes | None,
) -> None:
    """Invalid bytes are ``\\xNN`` in ``content``, and their lines have ``content_base64``."""
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    [partition] = plan(Search([str(tmp_path)], encoding=encoding).all().files, partition_bytes=1000)
    ship_splits(partition, make_job(parser="text"))
    first, second = held(server)
    assert first["content"] == kept.replace(r"\u4e2d", "\u4e2d")
    assert first.get("content_base64") == (exact and base64.b64encode(exact).decode())
    assert (second["content"], "content_base64" in second) == ("ok", False)


@pytest.mark.parametrize("name", ["a.log", "a.log.gz"])
def test_files_of_another_encoding_become_utf8(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, name: str
) -> None:
    """With ``--encoding``, files that look binary are found and converted, whatever the size of ranges."""
    text = "".join(f"eins {number} \u00fc\u010a\n" for number in range(200)).encode("utf-16")
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    figures = Figures()
    for partition in plan(Search([str(tmp_path)], encoding="utf-16").all().files, partition_bytes=1000):
        figures += ship_splits(partition, make_job(parser="text"))
    assert contents(server) == [f"eins {number} \u00fc\u010a" for number in range(200)]


def test_a_file_that_looks_like_utf_16_and_one_with_a_hole_are_logged_once_skipped_nuls_are_counted(
    tmp_path: Path, server: LogHubServer, make_job: MakeJob, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that looks like UTF-16, and one with a hole, are logged once; skipped NULs are counted."""
    (tmp_path / "a.log").write_bytes("INFO x\n".encode("utf-16") * 5)
    (tmp_path / "b.log").write_bytes(b"\0" * 5000 + b"one\n" + b"\0" * 5000 + b"two\n")
    figures = Figures()
    for file in ("a.log", "b.log"):
        figures += ship_path(tmp_path / file, make_job(parser="text"))
    first, second = [record.getMessage() for record in caplog.records if record.name == "loghub.ship"]
    assert "a.log looks like utf-16, but is read as UTF-8: use --encoding utf-16" in first
    assert "b.log: 5000 NUL bytes before a line are skipped" in second
    assert figures.skipped_nuls == 10_000
