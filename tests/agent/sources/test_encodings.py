"""taildir and spooldir: byte order marks, encodings, and holes of NUL bytes."""

import codecs
import os
import resource
from pathlib import Path

import pytest

from producer.agent import AgentConfigError

from .following import Tail, Writer
from .test_spooldir import Spool


def test_a_utf_8_byte_order_mark_is_in_no_event(tail: Tail, tmp_path: Path) -> None:
    """A UTF-8 byte order mark is in no event, and a file with only the mark has no event."""
    a = Writer(tail.logs / "a.log")
    a.append(codecs.BOM_UTF8)
    assert tail.seen(60) == []
    a.append(b"one\n" + codecs.BOM_UTF8 + b"two\n")
    assert tail.seen() == [b"one", codecs.BOM_UTF8 + b"two"]

    spool = Spool(tmp_path / "spool")
    spool.write("a", codecs.BOM_UTF8 + b"one\n")
    spool.write("b", codecs.BOM_UTF8)
    spool.look()
    assert spool.lines() == [b"one"]
    assert spool.done() == ["a.COMPLETED", "b.COMPLETED"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le", "latin-1", "gb18030", "utf-8-sig"])
def test_files_of_another_encoding_become_utf8(tmp_path: Path, encoding: str) -> None:
    """With encoding, lines arrive as UTF-8, also lines written later, half a character at a time."""
    tail = Tail(tmp_path, encoding=encoding)
    a = Writer(tail.logs / "a.log")
    text = (
        "eins \u00fc\n\u010a \u0a0a zwei\nu" if "utf" in encoding or encoding == "gb18030" else "eins \u00fc\nzwei\nu"
    )
    raw = text.encode(encoding)
    a.append(raw[:-1])
    assert tail.seen() == [line.encode() for line in text.split("\n")[:-1]]
    a.append(raw[-1:] + "v\n".encode(encoding).removeprefix(codecs.BOM_UTF16).removeprefix(codecs.BOM_UTF8))
    assert tail.seen() == [b"uv"]


def test_an_encoding_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """An unknown encoding is refused, and so is an encoding together with options that need the file's bytes."""
    for options in ({"encoding": "utf-17"}, {"encoding": "rot13"}, {"encoding": "utf-16", "byte_offset_header": True}):
        with pytest.raises(AgentConfigError, match="encoding"):
            Tail(tmp_path, **options)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_that_looks_like_another_encoding_gives_one_warning_with_its_name_and_the_option(
    tail: Tail, tmp_path: Path, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that looks like another encoding gives one warning with its name and the option; other files give none."""
    Writer(tail.logs / "a.log").append("INFO something\n".encode(encoding) * 9)
    Writer(tail.logs / "b.log").append(b"INFO \xff something\n" * 9)
    spool = Spool(tmp_path / "spool")
    spool.write("c", "INFO something\n".encode(encoding) * 9)
    tail.look(), tail.look(), spool.look()
    (first, second) = [record.getMessage() for record in caplog.records if "looks like" in record.message]
    assert "a.log looks like utf-16" in first
    assert "set encoding =" in first
    assert "set encoding =" in second


def _hole(path: Path, size: int) -> None:
    os.truncate(path, 0)
    os.truncate(path, size)


def test_a_hole_that_copytruncate_leaves_is_skipped(tail: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """200 MiB of NUL bytes take no memory and give no event; they are counted, with one warning."""
    a = Writer(tail.logs / "a.log")
    lines = a.lines(3)
    assert tail.seen() == lines
    _hole(tail.logs / "a.log", 200 << 20)
    assert tail.seen() == []
    assert tail.seen(60) == []  # bytes may still be written after the hole
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    a.append(b"behind\n" + b"\0" * 5000 + b"again\nand \0\0\0\0\0 in a line\n\0\0\0short\n")
    assert tail.seen() == [b"behind", b"again", b"and \0\0\0\0\0 in a line", b"\0\0\0short"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10
    assert tail.counters.snapshot()["SkippedNulCount"] == (200 << 20) + 5000
    assert [record.message for record in caplog.records if "NUL" in record.message] == [caplog.messages[-1]]
    a.append(b"more\n")
    assert tail.seen() == [b"more"]


def test_a_complete_file_with_holes_is_completed(tmp_path: Path) -> None:
    """spooldir skips NUL bytes before a line and at the end of a file, and completes the file."""
    spool = Spool(tmp_path)
    spool.write("a", b"\0" * 5000 + b"one\n" + b"\0" * 10 + b"two\n" + b"\0" * 100)
    spool.look()
    assert spool.lines() == [b"one", b"two"]
    assert spool.done() == ["a.COMPLETED"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32-le", "gb18030"])
def test_events_of_several_lines_become_utf8(tmp_path: Path, encoding: str) -> None:
    """With encoding, multiline_start matches the decoded text; an event is complete when the next one begins."""
    tail = Tail(tmp_path, encoding=encoding, multiline_start=r"\d", multiline_timeout=5.0)
    a = Writer(tail.logs / "a.log")
    raw = "1 eins\n\tat \u4e2d\n2 \u0a0a\n\u010a\n3".encode(encoding)
    a.append(raw[:-1])
    assert tail.seen() == ["1 eins\n\tat \u4e2d".encode()]
    a.append(raw[-1:] + " \u4e2d\n".encode(encoding).removeprefix(codecs.BOM_UTF16))
    assert tail.seen() == ["2 \u0a0a\n\u010a".encode()]
    assert tail.seen(5.0) == ["3 \u4e2d".encode()]
    a.append("4\n5\n".encode(encoding).removeprefix(codecs.BOM_UTF16))
    assert tail.seen() == [b"4"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32-be", "gbk", "gb18030", "shift_jis", "utf-8"])
@pytest.mark.parametrize("kind", ["taildir", "spooldir"])
def test_a_long_line_is_split_between_characters(tmp_path: Path, kind: str, encoding: str) -> None:
    """A line beyond max_line_bytes, and a line across the blocks of a file, are split at whole characters."""
    text = "\u4e2d" * 700_000 if encoding != "shift_jis" else "\u4e2da" * 400_000
    lines = [f"x{text}", f"xx{text}", *["\u4e2d"] * 30]
    raw = "".join(f"{line}\n" for line in lines).encode(encoding)
    if kind == "taildir":
        reader: Tail = Tail(tmp_path, encoding=encoding, max_line_bytes=(1 << 20) + 1)
        Writer(reader.logs / "a.log").append(raw)
    else:
        reader = Spool(tmp_path, encoding=encoding, max_line_bytes=(1 << 20) + 1)
        reader.write("a.log", raw)
    bodies = [body.decode() for body in reader.seen()]
    assert "".join(bodies) == "".join(lines)
    assert bodies[-30:] == lines[-30:]
    assert len(bodies) > len(lines)
    assert reader.counters.get("ReplacedCharacterCount") == 0


@pytest.mark.parametrize(("encoding", "half"), [("gbk", 1), ("utf-16-le", 1), ("utf-16-le", 3)])
def test_half_a_character_at_the_end_waits_for_its_other_half(tmp_path: Path, encoding: str, half: int) -> None:
    """A last line that rests without its end is taken up to its last whole character."""
    tail, text = Tail(tmp_path, encoding=encoding), "eins \U00020bb7" if half == 3 else "eins \u4e2d"
    a, raw = Writer(tail.logs / "a.log"), text.encode(encoding)
    a.append(raw[:-half])
    assert tail.seen() == []
    assert tail.seen(60) == [b"eins "]
    a.append(raw[-half:] + "zwei\n".encode(encoding))
    assert tail.seen() == [text[5:].encode() + b"zwei"]


@pytest.mark.parametrize(("encoding", "bad"), [("gbk", b"\xff"), ("ascii", b"\xe9"), ("utf-16-le", b"\x00\xdc")])
def test_invalid_bytes_are_marked_and_counted(
    tmp_path: Path, encoding: str, bad: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that are invalid in the encoding become U+FFFD; they are counted, and logged once a file."""
    raw = "eins ".encode(encoding) + bad + " zwei\ndrei\n".encode(encoding)
    tail = Tail(tmp_path, encoding=encoding)
    a = Writer(tail.logs / "a.log")
    spool = Spool(tmp_path / "spool", encoding=encoding, decode_error_policy="REPLACE")
    a.append(raw)
    spool.write("a", raw)
    expected = ["eins \ufffd zwei".encode(), b"drei"]
    assert spool.seen() == expected
    assert spool.counters.get("ReplacedCharacterCount") == 1
    if encoding == "ascii":  # taildir keeps the bytes of UTF-8 files
        return
    assert tail.seen() == expected
    a.append(raw)
    assert tail.seen() == expected
    assert tail.counters.get("ReplacedCharacterCount") == 2
    marked = [message for message in caplog.messages if "U+FFFD" in message]
    assert [message.partition(":")[0] for message in marked] == [str(spool.logs / "a"), str(a.path)]
