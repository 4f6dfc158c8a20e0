"""taildir: unread lines of a file that was rotated and compressed are read from the compressed file."""

import gzip
from pathlib import Path

import pytest

from producer.agent.sources.taildir import compressed
from producer.runtime.clock import Stop

from .following import Tail, Writer


@pytest.fixture
def strict(tmp_path: Path) -> Tail:
    return Tail(tmp_path, file_groups={"g": str(tmp_path / "logs") + r"/a\.log"}, file_header=True)


def compress(path: Path) -> Path:
    """Compress a file between two scans as logrotate does: rename, compress, delete."""
    packed = path.with_name(f"{path.name}.1.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_lines_compressed_while_the_agent_is_down_are_read_once_under_the_files_path(strict: Tail, end: str) -> None:
    """Lines compressed while the agent is down are read once, under the file's path, with those of the new file."""
    a = Writer(strict.logs / "a.log")
    first = a.lines(100)
    assert strict.seen() == first
    getattr(strict, end)()
    unread = a.lines(50)
    a.append(b"half")
    compress(a.path)
    new = Writer(a.path, "new").lines(20)

    strict.look()
    strict.clock.advance(2)
    strict.look()
    events = [event for batch in strict.batches() for event in batch.events()]
    assert sorted(body for _, body in events) == sorted([*unread, b"half", *new])
    assert {headers["file"] for headers, _ in events} == {str(a.path)}
    assert strict.seen(200) == []
    getattr(strict, end)()
    assert strict.seen(5) == []


def test_unread_lines_are_read_from_a_file_that_was_copied_truncated_and_compressed_between_two_scans(
    strict: Tail,
) -> None:
    """Unread lines are read from a file that was copied, truncated and compressed between two scans."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    unread = a.lines(50)
    (strict.logs / "a.log.1.gz").write_bytes(gzip.compress(a.path.read_bytes()))
    a.path.write_bytes(b"")
    new = a.lines(5)

    assert sorted(strict.seen()) == sorted(unread + new)
    assert strict.seen(200) == []


def test_a_compressed_file_without_unread_lines_is_not_unpacked_its_trailer_has_its_size(
    strict: Tail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A compressed file without unread lines is not unpacked: its trailer has its size."""
    monkeypatch.setattr(compressed, "_unpack", lambda *_: pytest.fail("unpacked"))
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    strict.restart()
    compress(a.path)

    assert strict.seen() == []
    assert errors(caplog) == []


@pytest.mark.parametrize("down", [True, False])
def test_a_stop_while_a_packed_file_is_unpacked_calls_nothing_gone(
    strict: Tail, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, down: bool
) -> None:
    """A stop during the unpacking does not report lines as lost; the next start unpacks again."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    a.append(b"half")
    strict.seen()
    if down:
        strict.restart()
        compress(a.path)
    else:
        (strict.logs / "a.log.1.gz").write_bytes(gzip.compress(a.path.read_bytes()))
        a.path.write_bytes(b"")

    with monkeypatch.context() as patch:
        patch.setattr(compressed, "_unpack", lambda *_: strict.stop.set())
        strict.look()
    assert strict.stop.is_set()
    assert errors(caplog) == []
    strict.restart()
    strict.stop = Stop(strict.clock)
    strict.look()
    assert strict.seen(2) == [b"half"]


def test_a_packed_file_with_other_bytes_is_left_alone(strict: Tail, caplog: pytest.LogCaptureFixture) -> None:
    """A compressed file with other bytes is ignored, and the lost bytes are reported."""
    a = Writer(strict.logs / "a.log")
    a.lines(100)
    strict.seen()
    lost = sum(len(line) + 1 for line in a.lines(10))
    strict.restart()
    text = a.path.read_bytes()
    a.path.unlink()
    for number, other in enumerate((b"other\n" + text, text[:2000] + text[2100:] + bytes(5000))):
        (strict.logs / f"a.log.{number}.gz").write_bytes(gzip.compress(other))

    strict.clock.advance(1)
    assert strict.seen() == []
    assert errors(caplog) in ([], [f"{a.path}: {lost} unread bytes were deleted"])


@pytest.mark.parametrize("damage", [lambda raw: raw[:-300], lambda raw: raw[:600] + b"\0" * 100 + raw[700:]])
def test_a_damaged_compressed_file_is_logged_and_does_not_stop_the_source(
    strict: Tail, caplog: pytest.LogCaptureFixture, damage: object
) -> None:
    """A damaged compressed file is logged, and does not stop the source."""
    a = Writer(strict.logs / "a.log")
    a.lines(1000)
    strict.seen()
    strict.restart()
    a.lines(1000)
    packed = compress(a.path)
    packed.write_bytes(damage(packed.read_bytes()))  # type: ignore[operator]
    new = Writer(a.path, "new").lines(3)

    assert strict.seen() == new
    assert any(str(packed) in each and "cannot be unpacked" in each for each in errors(caplog))
