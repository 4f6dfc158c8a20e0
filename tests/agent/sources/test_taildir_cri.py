"""taildir on container logs in the CRI format: parts are joined, and never delivered separately."""

from pathlib import Path

import pytest

from producer.agent.sources.reading import reader
from producer.agent.sources.reading.cri import whole_end
from producer.agent.sources.taildir import TaildirSource
from producer.model.errors import ConfigError

from .following import Tail, Writer

SECOND = 1_475_713_029


def line(text: str, tag: str = "F", stream: str = "stdout", fraction: str = ".669794202") -> bytes:
    return f"2016-10-06T00:17:09{fraction}Z {stream} {tag} {text}\n".encode()


def tail(tmp_path: Path) -> tuple[Tail, Writer]:
    followed = Tail(tmp_path, line_format="cri", multiline_timeout=5.0)
    return followed, Writer(followed.logs / "pod.log")


def test_parts_are_joined_for_each_stream(tmp_path: Path) -> None:
    """Parts are joined for each stream, in the order of the last parts, with headers of the stream and first time."""
    followed, pod = tail(tmp_path)
    pod.append(line("one ", "P", fraction=".1") + line("bad ", "P", "stderr") + line("two ", "P") + line("three"))
    pod.append(line("news", "F:x", "stderr", ""))
    followed.look()
    (batch,) = followed.batches()
    assert list(batch.events()) == [
        ({"stream": "stdout", "time": "2016-10-06T00:17:09.1Z", "timestamp": f"{SECOND}100"}, b"one two three"),
        ({"stream": "stderr", "time": "2016-10-06T00:17:09.669794202Z", "timestamp": f"{SECOND}669"}, b"bad news"),
    ]


def test_a_header_with_one_value_is_shared_empty_texts_are_events(tmp_path: Path) -> None:
    """A header with one value is shared; empty texts are events."""
    followed, pod = tail(tmp_path)
    pod.append(line("a P ") + line("") + line("b").replace(b"F b\n", b"F\n"))
    followed.look()
    (batch,) = followed.batches()
    assert batch.bodies() == [b"a P ", b"", b""]
    assert batch.shared["stream"] == "stdout"


def test_the_position_stops_before_a_part_without_its_end(tmp_path: Path) -> None:
    """The position stops before a part without its end; after a restart the line arrives whole, and once."""
    followed, pod = tail(tmp_path)
    pod.append(line("whole") + line("half", "P") + line("between", stream="stderr"))
    assert followed.seen() == [b"whole"]
    followed.restart()
    assert followed.seen(1.0) == []
    pod.append(line(" and half") + line("after"))
    assert followed.seen(1.0) == [b"between", b"half and half", b"after"]
    followed.restart()
    assert followed.seen(1.0) == []


def test_parts_are_joined_over_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are joined across blocks, also if a block ends within a line."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 100)
    followed, pod = tail(tmp_path)
    texts = [f"{number:03}" * (number % 30) for number in range(60)]
    for text in texts:
        halves = text[:20], text[20:40], text[40:]
        pod.append(b"".join(line(half, tag) for half, tag in zip(halves, "PPF", strict=True)))
        pod.append(line("e", "PF"[len(text) % 2], "stderr"))
    pod.append(line("end", stream="stderr"))
    seen = followed.seen()
    assert [body for body in seen if (body.strip(b"e") and body[-3:] != b"end") or body == b""] == [
        text.encode() for text in texts
    ]
    assert b"".join(body for body in seen if body and not body.strip(b"end")).count(b"e") == 61


def test_a_part_without_its_end_is_an_event_once_the_file_has_rested_for_multiline_timeout(tmp_path: Path) -> None:
    """A part without its end is an event once the file has rested for multiline_timeout."""
    followed, pod = tail(tmp_path)
    pod.append(line("last words", "P"))
    assert followed.seen(1.0) == []
    assert followed.seen(5.0) == [b"last words"]


def test_a_part_does_not_hold_up_the_other_stream_for_long(tmp_path: Path) -> None:
    """After multiline_timeout a part without its end is an event, so the other stream continues."""
    followed, pod = tail(tmp_path)
    pod.append(line("half", "P", "stderr"))
    seen: list[bytes] = []
    for number in range(6):
        pod.append(line(f"{number}"))
        seen += followed.seen(1.0)
        assert (b"0" in seen) == (number == 5)
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"5", b"half"]


def test_a_line_whose_parts_exceed_max_line_bytes_is_split_without_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line whose parts exceed max_line_bytes is split without a loss."""
    monkeypatch.setattr(reader, "BLOCK_BYTES", 1024)
    followed = Tail(tmp_path, line_format="cri", max_line_bytes=1024)
    Writer(followed.logs / "pod.log").append(b"".join(line("x" * 500, "P") for _ in range(5)) + line("y"))
    seen = followed.seen()
    assert len(seen) > 1
    assert b"".join(seen) == b"x" * 2500 + b"y"


def test_a_line_in_another_format_is_an_event_without_headers_an_invalid_time_gives_no_timestamp(
    tmp_path: Path,
) -> None:
    """A line in another format is an event without headers; an invalid time gives no timestamp."""
    followed, pod = tail(tmp_path)
    pod.append(b'{"log":"docker"}\nnoon stdout F a\r\n')
    followed.look()
    (batch,) = followed.batches()
    assert list(batch.events()) == [({}, b'{"log":"docker"}'), ({"stream": "stdout", "time": "noon"}, b"a")]


def test_without_partial_lines_whole_events_end_at_the_last_line_end_found_without_a_step() -> None:
    """Without partial lines whole events end at the last line end, found without a step for each line."""
    data = line("a") + line("b")
    assert whole_end(data) == len(data)


@pytest.mark.parametrize("more", [{"multiline_start": "x"}, {"byte_offset_header": True}])
def test_options_that_exclude_line_format_cri_are_refused_before_the_start(more: dict[str, object]) -> None:
    """Options that exclude line_format = cri are refused before the start."""
    with pytest.raises(ConfigError, match="cannot be used with"):
        TaildirSource.Options(paths=("/a",), line_format="cri", **more)  # type: ignore[arg-type]
